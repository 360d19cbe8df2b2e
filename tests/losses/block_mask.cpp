// SPDX-License-Identifier: MIT
// BlockMask: GLIDE's training mask.
#include <losses/block_mask.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace specula;

namespace {

/// Inference, independently: keys of the target that draft step `step` (from 1) of the round with its root at
/// position `root` sees, and the position of its query. The target has computed the tokens before the root.
struct InferenceStep {
  std::int32_t query;
  std::vector<std::int32_t> keys;
};
InferenceStep inference(std::int32_t root, std::int32_t step) {
  InferenceStep out{root, {}};
  for (std::int32_t key = 0; key < root; ++key) out.keys.push_back(key);
  for (std::int32_t i = 1; i < step; ++i) ++out.query;  // draft tokens, which the target has not computed
  return out;
}

}  // namespace

TEST_CASE("blocks of 5: the table") {
  constexpr std::array<std::int32_t, 16> visible{0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 10, 10, 10, 10, 10, 15},
      step{1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1};
  const BlockMask mask;
  CHECK(mask.block == 5);
  for (std::int32_t query = 0; query < 16; ++query) {
    CAPTURE(query);
    CHECK(mask.visible(query) == visible[static_cast<std::size_t>(query)]);
    CHECK(mask.step(query) == step[static_cast<std::size_t>(query)]);
  }
}

TEST_CASE("blocks of 1: every query is a root") {
  const BlockMask mask{.block = 1};
  for (std::int32_t query = 0; query < 10; ++query) {
    CHECK(mask.visible(query) == query);
    CHECK(mask.step(query) == 1);
  }
}

TEST_CASE("a query sees the keys that its draft step in a round sees") {
  for (std::int32_t block = 1; block <= 9; ++block)
    for (std::int32_t query = 0; query < 40; ++query) {
      const BlockMask mask{.block = block};
      CAPTURE(block);
      CAPTURE(query);
      // The round whose root is the first token of the block; in block 0 the query is the root itself.
      std::int32_t root = 0;
      while (root + block <= query) root += block;
      if (root == 0) root = query;
      const InferenceStep round = inference(root, mask.step(query));
      CHECK(round.query == query);
      std::vector<std::int32_t> keys;
      for (std::int32_t key = 0; key < mask.visible(query); ++key) keys.push_back(key);
      CHECK(keys == round.keys);
      CHECK(mask.step(query) <= block);
    }
}

TEST_CASE("outside block 0 it is the paper's mask: a key is seen if its block is before the query's") {
  for (std::int32_t block = 1; block <= 7; ++block)
    for (std::int32_t query = block; query < 40; ++query)
      for (std::int32_t key = 0; key < 40; ++key)
        CHECK((key < BlockMask{.block = block}.visible(query)) == (query / block > key / block));
}

TEST_CASE("empty blocks and negative queries are refused") {
  CHECK_THROWS_WITH_AS(BlockMask{.block = 0}.visible(3), "BlockMask: block is 0, must be >= 1",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(BlockMask{.block = -5}.step(3), doctest::Contains("BlockMask: block is -5"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(BlockMask{.block = 0}.validate(), doctest::Contains("BlockMask: block is 0"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(BlockMask{}.visible(-1), "BlockMask: the query is -1, must be >= 0",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(BlockMask{}.step(-1), doctest::Contains("BlockMask: the query is -1"),
                       std::invalid_argument);
  CHECK_NOTHROW(BlockMask{.block = 1}.validate());
}
