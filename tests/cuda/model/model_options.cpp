// SPDX-License-Identifier: MIT
// Options of a model on a device: the height that holds the nodes, and what is out of range.
#include <doctest/doctest.h>

#include <stdexcept>

#include <specula/cuda/model/model_options.hpp>

using specula::cuda::ModelOptions;
using specula::cuda::detail::checked;
using specula::cuda::detail::height_of;

TEST_CASE("the height is the least that holds the nodes, unless it is given") {
  CHECK(height_of(1) == 64);
  CHECK(height_of(64) == 64);
  CHECK(height_of(65) == 128);
  CHECK(height_of(257) == 512);
  CHECK(checked({.max_nodes = 100}).height == 128);
  CHECK(checked({.max_nodes = 100, .height = 64}).height == 64);
}

TEST_CASE("an option out of range is named with its bounds") {
  const auto refused = [](const ModelOptions& options, const char* what) {
    CHECK_THROWS_WITH_AS(checked(options), what, std::invalid_argument);
  };
  refused({.capacity = 0}, "ModelOptions::capacity is 0, must be 1 to 16777216");
  refused({.max_nodes = 513}, "ModelOptions::max_nodes is 513, must be 1 to 512");
  refused({.slots = 4097}, "ModelOptions::slots is 4097, must be 1 to 4096");
  refused({.prefill_chunk = 0}, "ModelOptions::prefill_chunk is 0, must be 1 to 512");
  refused({.height = 100}, "ModelOptions::height is 100, must be 64, 128, 256 or 512");
  refused({.height = -1}, "ModelOptions::height is -1, must be 64, 128, 256 or 512");
}
