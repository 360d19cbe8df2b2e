// SPDX-License-Identifier: MIT
// Tree attention mask: a node attends to its ancestors and itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "specula/base/rows.hpp"

namespace specula {

/// 64-bit words per node's mask among `nodes` nodes.
inline constexpr std::size_t mask_words(std::size_t nodes) { return (nodes + 63) / 64; }

/// Writes bit j of row i iff node j is node i or an ancestor of it. `parents` is topological: parents[i] <
/// i, or kNoParent. `words` is (N, mask_words(N)), row-major. Throws std::invalid_argument naming the first
/// bad parent, or on a wrong size. Cost: N * mask_words(N) words. The context needs no bits: every node
/// attends to all of it.
inline void tree_mask(Nodes parents, std::span<std::uint64_t> words) {
  const std::size_t row = mask_words(parents.size());
  if (words.size() != parents.size() * row)
    throw std::invalid_argument("tree_mask: " + std::to_string(words.size()) + " words for " +
                                std::to_string(parents.size()) + " nodes, " +
                                std::to_string(parents.size() * row) + " are needed");
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const NodeId parent = parents[i];
    if (parent < kNoParent || parent >= static_cast<NodeId>(i))
      throw std::invalid_argument("tree_mask: node " + std::to_string(i) + " has parent " +
                                  std::to_string(parent) + ", must be -1 or an earlier node");
    for (std::size_t w = 0; w < row; ++w)
      words[i * row + w] = parent == kNoParent ? 0 : words[static_cast<std::size_t>(parent) * row + w];
    words[i * row + i / 64] |= std::uint64_t{1} << (i % 64);
  }
}

/// Bit `node` of one row of tree_mask().
inline bool sees(std::span<const std::uint64_t> row, std::size_t node) {
  return row[node / 64] >> (node % 64) & 1;
}

}  // namespace specula
