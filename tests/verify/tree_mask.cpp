// SPDX-License-Identifier: MIT
// tree_mask(): ancestor masks for tree attention.
#include <specula/verify/tree_mask.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "random.hpp"

using namespace specula;

TEST_CASE("a node sees its ancestors and itself, across word boundaries") {
  specula_test::Random random(1);
  for (const std::size_t n : {0u, 1u, 2u, 63u, 64u, 65u, 130u, 200u}) {
    std::vector<NodeId> parents;
    for (std::size_t i = 0; i < n; ++i) {
      const auto id = static_cast<std::int32_t>(i);
      parents.push_back(i == 0 || random.bernoulli(0.05) ? kNoParent
                        : random.bernoulli(0.6)          ? id - 1
                                                         : random.below(id));
    }
    CHECK(mask_words(n) == (n + 63) / 64);
    std::vector<std::uint64_t> words(n * mask_words(n), ~0ull);  // earlier content does not matter
    tree_mask(parents, words);
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<char> seen(n, 0);
      for (NodeId at = static_cast<NodeId>(i); at != kNoParent; at = parents[static_cast<std::size_t>(at)])
        seen[static_cast<std::size_t>(at)] = 1;
      const auto row = std::span<const std::uint64_t>(words).subspan(i * mask_words(n), mask_words(n));
      for (std::size_t j = 0; j < n; ++j) REQUIRE(sees(row, j) == (seen[j] == 1));
      if (n % 64 != 0) CHECK((row.back() >> (n % 64)) == 0);
    }
  }
}

TEST_CASE("bad parents and a wrong size are errors") {
  std::vector<std::uint64_t> words(2);
  using Error = std::invalid_argument;
  CHECK_THROWS_WITH_AS(tree_mask(std::vector<NodeId>{-1, 1}, words),
                       "tree_mask: node 1 has parent 1, must be -1 or an earlier node", Error);
  CHECK_THROWS_AS(tree_mask(std::vector<NodeId>{-1, -2}, words), Error);
  CHECK_THROWS_AS(tree_mask(std::vector<NodeId>{0, 0}, words), Error);
  CHECK_THROWS_WITH_AS(tree_mask(std::vector<NodeId>{-1}, words),
                       "tree_mask: 2 words for 1 nodes, 1 are needed", Error);
}
