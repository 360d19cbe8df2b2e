// SPDX-License-Identifier: MIT
// SkippedBlocks: given blocks, their count, and errors that name kind, layer and range.
#include <specula/model/skipped_blocks.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

using specula::SkippedBlocks;
using Layers = std::vector<std::int32_t>;

TEST_CASE(
    "given blocks are those of layers counted from 1, in any order; none at first, none after keep_all()") {
  const SkippedBlocks none(3);
  CHECK(none.layers() == 3);
  CHECK(none.count() == 0);
  SkippedBlocks some = SkippedBlocks::given(3, Layers{3, 1}, Layers{2});
  CHECK(some.attention == std::vector<std::uint8_t>{1, 0, 1});
  CHECK(some.mlp == std::vector<std::uint8_t>{0, 1, 0});
  CHECK(some.count() == 3);
  CHECK(some != none);
  some.keep_all();
  CHECK(some == none);
}

TEST_CASE("a layer that is not there, or is named twice") {
  CHECK_THROWS_WITH_AS(SkippedBlocks::given(3, Layers{0}, {}),
                       "SkippedBlocks: attention of layer 0, the layers are 1 to 3", std::invalid_argument);
  CHECK_THROWS_WITH_AS(SkippedBlocks::given(3, {}, Layers{4}),
                       "SkippedBlocks: MLP of layer 4, the layers are 1 to 3", std::invalid_argument);
  CHECK_THROWS_WITH_AS(SkippedBlocks::given(3, {}, Layers{2, 2}),
                       "SkippedBlocks: MLP of layer 2 is named twice", std::invalid_argument);
}
