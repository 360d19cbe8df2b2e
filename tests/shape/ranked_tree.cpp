// SPDX-License-Identifier: MIT
// RankedTree: forms of static trees, as choices or parent links.
#include <specula/shape/ranked_tree.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "random.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Choice = RankedTree::Choice;
using Choices = std::vector<Choice>;

/// The path of ranks to each node, from its links.
Choices paths(const RankedTree& tree) {
  Choices out{{}};
  for (NodeId n = 1; n < tree.size(); ++n) {
    REQUIRE(tree.parent(n) < n);
    out.push_back(out[static_cast<std::size_t>(tree.parent(n))]);
    out.back().push_back(tree.rank(n));
  }
  return out;
}

std::string complaint(const Choices& choices) {
  try {
    RankedTree{std::span<const Choice>(choices)};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("levels, links and ranks, for any order with parents before children") {
  const RankedTree tree{{1}, {1, 0}, {0}, {1, 0, 2}, {1, 1}, {0, 3}, {1, 0, 0}};
  CHECK(paths(tree) == Choices{{}, {0}, {1}, {0, 3}, {1, 0}, {1, 1}, {1, 0, 0}, {1, 0, 2}});
  CHECK(tree.depth() == 3);
  CHECK(tree.most_rank() == 3);
  CHECK(tree.draft_nodes() == 4);  // the root, {0}, {1}, {1, 0}
  const std::vector<NodeId> levels{0, 1, 3, 6, 8};
  for (std::int32_t l = 0; l <= 4; ++l) CHECK(tree.level(l) == levels[static_cast<std::size_t>(l)]);
  CHECK(tree.children(0) == 2);
  CHECK(tree.first_child(2) == 4);
  CHECK(tree.children(2) == 2);
  CHECK(tree.children(7) == 0);
}

TEST_CASE("EAGLE's tree: 26 nodes in five levels, 11 of them run by the draft") {
  const RankedTree tree = RankedTree::eagle();
  CHECK(tree.size() == 26);
  CHECK(tree.depth() == 5);
  CHECK(tree.draft_nodes() == 11);
  CHECK(tree.most_rank() == 3);
  std::vector<std::int32_t> widths;
  for (std::int32_t l = 1; l <= 5; ++l) widths.push_back(tree.level(l + 1) - tree.level(l));
  CHECK(widths == std::vector<std::int32_t>{4, 8, 8, 3, 2});
}

TEST_CASE("parent links and choices are the same trees") {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<NodeId> parents;
    std::vector<std::int32_t> ranks, next{0};  // the next rank below the root, below each draft token
    Choices choices;
    for (NodeId n = 0; n < 1 + random.below(30); ++n) {
      const NodeId parent = random.below(n + 1) - 1;
      parents.push_back(parent);
      next.push_back(0);
      auto& rank = next[static_cast<std::size_t>(parent + 1)];
      rank += random.below(3);
      ranks.push_back(rank++);
      choices.push_back(parent < 0 ? Choice{} : choices[static_cast<std::size_t>(parent)]);
      choices.back().push_back(ranks.back());
    }
    const RankedTree linked = RankedTree::from_parents(parents, ranks);
    const Choices want = paths(RankedTree{std::span<const Choice>(choices)});
    CHECK(paths(linked) == want);
    // All draft tokens are present, ordered by level and rank.
    for (const Choice& path : choices) CHECK(std::count(want.begin(), want.end(), path) == 1);
    for (std::size_t n = 2; n < want.size(); ++n)
      CHECK((want[n - 1].size() < want[n].size() ||
             (want[n - 1].size() == want[n].size() && want[n - 1] < want[n])));
  }
}

TEST_CASE("errors name the draft token that makes a list invalid") {
  CHECK(complaint({}) == "RankedTree: the number of draft tokens is 0, must be in [1, 16777214]");
  CHECK(complaint({{0}, {}}) == "RankedTree: draft token 1 is {}: the root is no draft token");
  CHECK(complaint({{0}, {0, -2}}) == "RankedTree: draft token 1 is {0, -2}: ranks must be in [0, 16777213]");
  CHECK(complaint({{1}, {0}, {1, 0}, {0}}) == "RankedTree: draft tokens 1 and 3 are both {0}");
  CHECK(complaint({{0, 1}, {0}}) ==
        "RankedTree: draft token 0, {0, 1}, comes before its parent or without it: {0} must stand in front "
        "of it");
  CHECK(complaint({{0}, {1, 0, 2}, {1}}) ==
        "RankedTree: draft token 1, {1, 0, 2}, comes before its parent or without it: {1, 0} must stand in "
        "front of "
        "it");
  const auto linked = [](std::vector<NodeId> parents, std::vector<std::int32_t> ranks) {
    RankedTree::from_parents(parents, ranks);
  };
  CHECK_THROWS_WITH_AS(
      linked({kNoParent, 1}, {0, 0}),
      "RankedTree: the parent of draft token 1 is 1, must be an earlier draft token, or -1 for the root",
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      linked({-2}, {0}),
      "RankedTree: the parent of draft token 0 is -2, must be an earlier draft token, or -1 for the root",
      std::invalid_argument);
  CHECK_THROWS_WITH_AS(linked({kNoParent}, {}), "RankedTree: 0 ranks for 1 parents", std::invalid_argument);
  CHECK_THROWS_WITH_AS(linked({kNoParent, 0, 0}, {0, 1, 1}),
                       "RankedTree: draft tokens 1 and 2 are both {0, 1}", std::invalid_argument);
  CHECK_THROWS_AS(linked({}, {}), std::invalid_argument);
}
