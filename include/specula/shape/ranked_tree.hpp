// SPDX-License-Identifier: MIT
// Topology of a static draft tree: each node is a rank among the draft's likeliest tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"

namespace specula {

/// A fixed tree of ranks. Node 0 is the root; every other node stands for the token of rank r after its
/// parent, where rank 0 is the draft's likeliest token. Nodes are numbered level by level, siblings
/// contiguously and by rank. Immutable; checks and allocates in the constructor.
class RankedTree {
 public:
  /// The ranks on the path from the root to a node: {0, 2} is the third best token after the best one.
  using Choice = std::vector<std::int32_t>;

  /// From the paths to all nodes but the root, as EAGLE and Medusa write their trees: {{0}, {1}, {0, 0}}.
  /// Throws std::invalid_argument if there are none, if a path is empty or a duplicate, if a rank is negative
  /// or too large, or if a node precedes or lacks its parent. Cost: O(n log n) comparisons of paths.
  explicit RankedTree(std::span<const Choice> choices) {
    detail::expect_in("RankedTree: the number of draft tokens", choices.size(), std::size_t{1},
                      static_cast<std::size_t>(detail::kMaxDraftTokens));
    for (std::size_t i = 0; i < choices.size(); ++i) expect_ranks(choices[i], i);
    std::vector<std::size_t> order(choices.size());  // node n is choices[order[n - 1]]
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return before(choices[a], choices[b]) || (a < b && choices[a] == choices[b]);
    });
    nodes_.push_back({});
    levels_ = {0, 1};
    for (std::size_t n = 1; n <= order.size(); ++n) {
      const std::size_t i = order[n - 1];
      const Choice& path = choices[i];
      if (n > 1 && choices[order[n - 2]] == path)
        fail("draft tokens " + detail::number(order[n - 2]) + " and " + detail::number(i) + " are both " +
             text(path));
      const NodeId parent = find(choices, order, n, std::span(path).first(path.size() - 1), i);
      nodes_.push_back({parent, path.back()});
      Node& above = nodes_[index(parent)];
      if (above.children++ == 0) above.first_child = static_cast<NodeId>(n), ++draft_nodes_;
      most_rank_ = std::max(most_rank_, path.back());
      levels_.resize(path.size() + 2);
      levels_.back() = static_cast<NodeId>(n + 1);
    }
  }
  /// The same, written in place.
  RankedTree(std::initializer_list<Choice> choices)
      : RankedTree(std::span<const Choice>(choices.begin(), choices.size())) {}

  /// From parents: draft token i has rank `ranks[i]` after draft token `parents[i]`, an earlier one or
  /// kNoParent for the root; both are (draft tokens). Throws as above, and if the sizes differ.
  static RankedTree from_parents(Nodes parents, std::span<const std::int32_t> ranks) {
    if (parents.size() != ranks.size())
      fail(detail::number(ranks.size()) + " ranks for " + detail::number(parents.size()) + " parents");
    std::vector<Choice> choices(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i) {
      const NodeId parent = parents[i];
      if (parent < kNoParent || (parent != kNoParent && index(parent) >= i))
        fail("the parent of draft token " + detail::number(i) + " is " + detail::number(parent) +
             ", must be an earlier draft token, or -1 for the root");
      if (parent != kNoParent) choices[i] = choices[index(parent)];
      choices[i].push_back(ranks[i]);
    }
    return RankedTree(std::span<const Choice>(choices));
  }

  /// EAGLE's static tree: 25 draft tokens, 26 nodes with the root, in five levels. Source: EAGLE (Li et al.
  /// 2024), `mc_sim_7b_63` of model/choices.py in the authors' repository, SafeAILab/EAGLE.
  static RankedTree eagle() {
    // clang-format off
    return {{0}, {1}, {2}, {3},
            {0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0},
            {0, 0, 0}, {0, 0, 1}, {0, 0, 2}, {0, 1, 0}, {0, 1, 1}, {0, 2, 0}, {0, 2, 1}, {1, 0, 0},
            {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 2},
            {0, 0, 0, 0, 0}, {0, 0, 0, 0, 1}};
    // clang-format on
  }

  /// Nodes, the root included.
  std::int32_t size() const { return static_cast<std::int32_t>(nodes_.size()); }
  /// Levels below the root, which is the number of draft calls.
  std::int32_t depth() const { return static_cast<std::int32_t>(levels_.size()) - 2; }
  /// Nodes with children, which the drafter runs.
  std::int32_t draft_nodes() const { return draft_nodes_; }
  std::int32_t most_rank() const { return most_rank_; }                      ///< the largest rank
  NodeId parent(NodeId node) const { return nodes_[index(node)].parent; }    ///< kNoParent for the root
  std::int32_t rank(NodeId node) const { return nodes_[index(node)].rank; }  ///< among its siblings, from 0
  /// The number of children, and the first of them: the others follow it.
  std::int32_t children(NodeId node) const { return nodes_[index(node)].children; }
  /// The first child of `node`; kNoParent if there is none.
  NodeId first_child(NodeId node) const { return nodes_[index(node)].first_child; }
  /// The first node of a level: level 0 is the root, level depth() + 1, which is the last, gives size().
  NodeId level(std::int32_t level) const { return levels_[static_cast<std::size_t>(level)]; }

 private:
  struct Node {
    NodeId parent = kNoParent;
    std::int32_t rank = 0, children = 0;
    NodeId first_child = kNoParent;
  };

  static std::size_t index(NodeId node) { return static_cast<std::size_t>(node); }
  [[noreturn]] static void fail(const std::string& what) {
    throw std::invalid_argument("RankedTree: " + what);
  }
  static std::string text(std::span<const std::int32_t> path) {
    std::string out = "{";
    for (const std::int32_t rank : path) out.append(out.size() > 1 ? ", " : "").append(detail::number(rank));
    return out + '}';
  }
  /// The order of nodes: by level, then by ranks from the root on.
  static bool before(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
    return a.size() != b.size() ? a.size() < b.size()
                                : std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
  static void expect_ranks(const Choice& path, std::size_t draft_token) {
    if (path.empty())
      fail("draft token " + detail::number(draft_token) + " is {}: the root is no draft token");
    for (const std::int32_t rank : path)
      if (rank < 0 || rank >= detail::kMaxDraftTokens)
        fail("draft token " + detail::number(draft_token) + " is " + text(path) + ": ranks must be in [0, " +
             detail::number(detail::kMaxDraftTokens - 1) + "]");
  }
  /// The node of `path`, the parent of draft token `child`, among the first `n` nodes.
  static NodeId find(std::span<const Choice> choices, const std::vector<std::size_t>& order, std::size_t n,
                     std::span<const std::int32_t> path, std::size_t child) {
    if (path.empty()) return 0;
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(n - 1);
    const auto at = std::lower_bound(order.begin(), end, path,
                                     [&](std::size_t i, const auto& p) { return before(choices[i], p); });
    if (at == end || before(path, choices[*at]) || *at > child)
      fail("draft token " + detail::number(child) + ", " + text(choices[child]) +
           ", comes before its parent or without it: " + text(path) + " must stand in front of it");
    return static_cast<NodeId>(at - order.begin()) + 1;
  }

  std::vector<Node> nodes_;
  std::vector<NodeId> levels_;  // the first node of each level, and size()
  std::int32_t draft_nodes_ = 0, most_rank_ = 0;
};

}  // namespace specula
