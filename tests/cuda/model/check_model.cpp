// SPDX-License-Identifier: MIT
// labels: optimised
// check_model() and check_batched_model() find nothing in cuda::Model.
#include <doctest/doctest.h>

#include <specula/cuda/model/model.hpp>
#include <specula/model/check_model.hpp>

#include "model_findings.hpp"
#include "small_model.hpp"

using namespace small_model;
namespace cuda = specula::cuda;
using specula_test::EmulatedDevice;
using specula_test::words;

TEST_CASE("check_batched_model() finds nothing") {
  const auto weights = small_weights(1);
  EmulatedDevice device;
  device.order_depends_on_rows = true;  // so rows of other heights differ, unless the model takes care
  cuda::Model<EmulatedDevice> model(device, weights, {.capacity = 64, .max_nodes = 16, .slots = 2});
  CHECK(words(specula::check_batched_model(model)) == "");
}

TEST_CASE("check_model() finds nothing where products may have any height") {
  const auto weights = small_weights(1);
  EmulatedDevice device;
  cuda::Model<EmulatedDevice, cuda::FreeProducts> model(device, weights, {.capacity = 64, .max_nodes = 16});
  CHECK(words(specula::check_model(model)) == "");
}
