// The draft's rows that a proposal's tokens were drawn from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../rows.hpp"

namespace specula::detail {

/// Slots of V logits, one for each of the first nodes of a tree, and the law that was last made of each.
/// Allocates in the constructor only.
class DraftRows {
 public:
  /// Both sizes are sound.
  DraftRows(std::int32_t vocab, std::int32_t slots)
      : vocab_(static_cast<std::size_t>(vocab)),
        laws_(static_cast<std::size_t>(slots)),
        logits_(vocab_ * laws_.size()) {}

  /// Where the row after `node` is kept. Throws std::invalid_argument if the node has no slot, or `row`,
  /// which is to go there, another width.
  std::span<float> slot(NodeId node, std::span<const float> row) {
    if (node < 0 || static_cast<std::size_t>(node) >= laws_.size())
      throw std::invalid_argument("TokenTree: node " + std::to_string(node) + " has no row, " +
                                  std::to_string(laws_.size()) + " are kept");
    if (row.size() != vocab_)
      throw std::invalid_argument("TokenTree: the row after node " + std::to_string(node) + " has " +
                                  std::to_string(row.size()) + " logits, the vocabulary " +
                                  std::to_string(vocab_) + " tokens");
    return std::span<float>(logits_).subspan(static_cast<std::size_t>(node) * vocab_, vocab_);
  }

  /// `law` is what the row in the slot of `node` now stands for; {}: the row is being replaced.
  void made(NodeId node, const RowLaw& law) { laws_[static_cast<std::size_t>(node)] = law; }

  /// Nothing may be drawn any more from the rows of the nodes from `first` up to `end`.
  void forget(NodeId first, NodeId end) {
    for (auto node = static_cast<std::size_t>(first);
         node < std::min(laws_.size(), static_cast<std::size_t>(end)); ++node)
      laws_[node] = {};
  }

  /// False if `law` is over a row kept here, and not the law that was last made of it.
  bool is_current(const RowLaw& law) const {
    const std::less<const float*> before;
    if (law.is_point() || logits_.empty() || before(law.logits, logits_.data()) ||
        !before(law.logits, logits_.data() + logits_.size()))
      return true;
    return laws_[static_cast<std::size_t>(law.logits - logits_.data()) / vocab_] == law;
  }

 private:
  std::size_t vocab_;
  std::vector<RowLaw> laws_;   // (slots)
  std::vector<float> logits_;  // (slots, V)
};

}  // namespace specula::detail
