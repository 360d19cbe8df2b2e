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

#include "specula/rows.hpp"

namespace specula::detail {

/// Slots of V logits, one per node for the first nodes of a tree, and the distribution last made from each.
/// Allocates in the constructor only.
class DraftRows {
 public:
  /// Requires checked sizes.
  DraftRows(std::int32_t vocab, std::int32_t slots)
      : vocab_(static_cast<std::size_t>(vocab)),
        distributions_(static_cast<std::size_t>(slots)),
        logits_(vocab_ * distributions_.size()) {}

  /// The slot of the row after `node`. Throws std::invalid_argument if the node has no slot, or if `row`,
  /// which is to be stored there, has another width.
  std::span<float> slot(NodeId node, std::span<const float> row) {
    if (node < 0 || static_cast<std::size_t>(node) >= distributions_.size())
      throw std::invalid_argument("TokenTree: node " + std::to_string(node) + " has no row, " +
                                  std::to_string(distributions_.size()) + " are kept");
    if (row.size() != vocab_)
      throw std::invalid_argument("TokenTree: the row after node " + std::to_string(node) + " has " +
                                  std::to_string(row.size()) + " logits, the vocabulary " +
                                  std::to_string(vocab_) + " tokens");
    return std::span<float>(logits_).subspan(static_cast<std::size_t>(node) * vocab_, vocab_);
  }

  /// Records `distribution` as made from the row in the slot of `node`; {}: the row is being replaced.
  void made(NodeId node, const Distribution& distribution) {
    distributions_[static_cast<std::size_t>(node)] = distribution;
  }

  /// Invalidates the rows of the nodes in [first, end): nothing may be drawn from them any more.
  void forget(NodeId first, NodeId end) {
    for (auto node = static_cast<std::size_t>(first);
         node < std::min(distributions_.size(), static_cast<std::size_t>(end)); ++node)
      distributions_[node] = {};
  }

  /// False if `distribution` is over a row kept here, but is not the distribution last made from it.
  bool is_current(const Distribution& distribution) const {
    // a total order, unlike < of pointers into different arrays; <functional>, for std::less, is large
    const auto before = [](const float* a, const float* b) { return std::compare_three_way{}(a, b) < 0; };
    if (distribution.is_point() || logits_.empty() || before(distribution.logits, logits_.data()) ||
        !before(distribution.logits, logits_.data() + logits_.size()))
      return true;
    return distributions_[static_cast<std::size_t>(distribution.logits - logits_.data()) / vocab_] ==
           distribution;
  }

 private:
  std::size_t vocab_;
  std::vector<Distribution> distributions_;  // (slots)
  std::vector<float> logits_;                // (slots, V)
};

}  // namespace specula::detail
