// SPDX-License-Identifier: MIT
// The draft's rows of logits that the draft tokens of a proposal were drawn from.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/distribution/row_math.hpp"

namespace specula::detail {

/// Slots of V logits, one per node for the first nodes of a tree. Each keeps the distribution last made from
/// it and its tile masses (8 bytes per 512 logits), so that a draw from a kept row does not scan it again.
/// Allocates in the constructor only.
class DraftRows {
 public:
  /// Requires checked sizes.
  DraftRows(std::int32_t vocab, std::int32_t slots)
      : vocab_(static_cast<std::size_t>(vocab)),
        tiles_(static_cast<std::size_t>(tile_count(vocab))),
        distributions_(static_cast<std::size_t>(slots)),
        masses_(tiles_ * distributions_.size()),
        logits_(vocab_ * distributions_.size()) {}

  /// The slot (V) of the row after `node`. Throws std::invalid_argument if the node has no slot, or if `row`,
  /// which is to be stored there, is not V logits wide.
  std::span<float> slot(NodeId node, std::span<const float> row) {
    if (node < 0 || static_cast<std::size_t>(node) >= distributions_.size())
      throw std::invalid_argument("ProposalBuilder: node " + std::to_string(node) + " has no row, " +
                                  std::to_string(distributions_.size()) + " are kept");
    if (row.size() != vocab_)
      throw std::invalid_argument("ProposalBuilder: the row after node " + std::to_string(node) + " has " +
                                  std::to_string(row.size()) + " logits, the vocabulary " +
                                  std::to_string(vocab_) + " tokens");
    return std::span<float>(logits_).subspan(static_cast<std::size_t>(node) * vocab_, vocab_);
  }

  /// Tile masses of the row after `node`, to be written by the caller. Requires that the node has a slot.
  std::span<double> masses(NodeId node) {
    return std::span<double>(masses_).subspan(static_cast<std::size_t>(node) * tiles_, tiles_);
  }
  /// Records that `distribution`, with the tile masses in masses(node), was made from the row in the slot of
  /// `node`; {}: the row is being replaced.
  void made(NodeId node, const Distribution& distribution) {
    distributions_[static_cast<std::size_t>(node)] = distribution;
  }

  /// Invalidates the rows of the nodes in [first, end): nothing may be drawn from them any more.
  void drop(NodeId first, NodeId end) {
    for (auto node = static_cast<std::size_t>(first);
         node < std::min(distributions_.size(), static_cast<std::size_t>(end)); ++node)
      distributions_[node] = {};
  }

  /// The node in whose slot the row of `distribution` is kept; kNoParent if the row is the caller's.
  NodeId node_of(const Distribution& distribution) const {
    // a total order, unlike < of pointers into different arrays; <functional>, for std::less, is large
    const auto before = [](const float* a, const float* b) { return std::compare_three_way{}(a, b) < 0; };
    const RowPointer& row = distribution.logits;
    if (distribution.is_point() || row.format != RowFormat::full || logits_.empty() ||
        before(row.floats(), logits_.data()) || !before(row.floats(), logits_.data() + logits_.size()))
      return kNoParent;
    return static_cast<NodeId>(static_cast<std::size_t>(row.floats() - logits_.data()) / vocab_);
  }
  /// The distribution last made from the row after `node`. Requires that the node has a slot.
  const Distribution& distribution(NodeId node) const {
    return distributions_[static_cast<std::size_t>(node)];
  }

 private:
  std::size_t vocab_, tiles_;
  std::vector<Distribution> distributions_;  // (slots)
  std::vector<double> masses_;               // (slots, ceil(V / 512))
  std::vector<float> logits_;                // (slots, V)
};

}  // namespace specula::detail
