// SPDX-License-Identifier: MIT
// Random trees for property tests: chains, stars, bushes and mixtures, often with duplicate siblings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <specula/base/rows.hpp>

#include "random.hpp"

namespace specula_test {

/// Node 0 is the root; a root alone is the empty proposal.
struct RandomTree {
  std::vector<specula::NodeId> parents;  // (N), parents[i] < i, parents[0] == kNoParent
  std::vector<specula::Token> tokens;    // (N)

  std::int32_t size() const { return static_cast<std::int32_t>(parents.size()); }
  specula::NodeId parent(specula::NodeId node) const { return parents[static_cast<std::size_t>(node)]; }
  specula::Token token(specula::NodeId node) const { return tokens[static_cast<std::size_t>(node)]; }

  /// `node` and its ancestors, root first.
  std::vector<specula::NodeId> path_to(specula::NodeId node) const {
    std::vector<specula::NodeId> path;
    for (; node != specula::kNoParent; node = parent(node)) path.push_back(node);
    std::reverse(path.begin(), path.end());
    return path;
  }
  std::vector<specula::NodeId> children(specula::NodeId node) const {
    std::vector<specula::NodeId> out;
    for (specula::NodeId c = node + 1; c < size(); ++c)
      if (parent(c) == node) out.push_back(c);
    return out;
  }
  std::vector<specula::NodeId> leaves() const {
    std::vector<specula::NodeId> out;
    for (specula::NodeId n = 0; n < size(); ++n)
      if (children(n).empty()) out.push_back(n);
    return out;
  }
  std::vector<specula::Token> tokens_of(const std::vector<specula::NodeId>& path) const {
    std::vector<specula::Token> out;
    for (const specula::NodeId n : path) out.push_back(token(n));
    return out;
  }
  /// The path to `node` as a tree of its own.
  RandomTree branch(specula::NodeId node) const {
    RandomTree out;
    out.tokens = tokens_of(path_to(node));
    for (specula::NodeId n = 0; n < static_cast<specula::NodeId>(out.tokens.size()); ++n)
      out.parents.push_back(n - 1);
    return out;
  }
};

enum class TreeProfile : std::uint8_t {
  chain,
  star,         // all nodes are children of the root
  lanes,        // parallel chains, one node of each in turn
  bush,         // level by level, equally many children per node
  comb,         // a chain with leaves
  depth_first,  // depth-first order: a subtree comes before its later siblings
  any,          // every earlier node is as likely a parent
  switching     // alternates between the others
};

inline constexpr std::int32_t kTreeProfiles = 8;

/// A tree of `nodes` nodes; a token repeats that of a sibling with probability `alike`.
inline RandomTree random_tree(Random& random, std::int32_t nodes, std::int32_t vocab, TreeProfile profile,
                              double alike = 0.3) {
  RandomTree tree;
  const std::int32_t lanes = 2 + random.below(5), width = 2 + random.below(4);
  TreeProfile now = profile;
  for (std::int32_t i = 0; i < nodes; ++i) {
    if (profile == TreeProfile::switching && i % 8 == 0)
      now = static_cast<TreeProfile>(random.below(kTreeProfiles - 1));
    specula::NodeId parent = i - 1;
    if (now == TreeProfile::star) parent = 0;
    if (now == TreeProfile::lanes) parent = std::max(0, i - lanes);
    if (now == TreeProfile::bush) parent = (i - 1) / width;
    if (now == TreeProfile::comb) parent = std::max(0, i % 2 == 0 ? i - 1 : i - 2);
    if (now == TreeProfile::depth_first)
      while (parent > 0 && random.bernoulli(0.4)) parent = tree.parent(parent);
    if (now == TreeProfile::any) parent = random.below(std::max(1, i));
    if (i == 0) parent = specula::kNoParent;

    specula::Token token = random.below(vocab);
    if (const auto siblings = i == 0 ? std::vector<specula::NodeId>() : tree.children(parent);
        !siblings.empty() && random.bernoulli(alike))
      token = tree.token(
          siblings[static_cast<std::size_t>(random.below(static_cast<std::int32_t>(siblings.size())))]);
    tree.parents.push_back(parent);
    tree.tokens.push_back(token);
  }
  return tree;
}

/// A tree of any profile with at most `most` nodes; the smallest and the largest sizes are frequent.
inline RandomTree random_tree(Random& random, std::int32_t vocab, std::int32_t most) {
  const double kind = random.uniform();
  const std::int32_t nodes = kind < 0.1   ? std::min(most, 1 + random.below(3))
                             : kind < 0.2 ? std::max(1, most - random.below(3))
                                          : 1 + random.below(most);
  return random_tree(random, nodes, vocab, static_cast<TreeProfile>(random.below(kTreeProfiles)));
}

}  // namespace specula_test
