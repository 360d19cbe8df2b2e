// SPDX-License-Identifier: MIT
// Block-wise cross-attention mask for training GLIDE: the target's keys that a draft token attends to.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Training sequences are cut into blocks of `block` tokens, and a query's cross attention sees the target's
/// keys of the blocks before its own. These are the keys that it sees in a round whose root is the first
/// token of its block: the target has run the tokens before the root, not the root itself, and every draft
/// step sees those same keys.
///
/// Block 0 has no block before it. The paper's formula would leave its softmax empty; the usual remedy, and
/// the authors' own, is the ordinary causal mask, under which query i sees keys 0 to i. Here it sees keys 0
/// to i - 1, as if i were the root of a round: a root's own key does not exist yet when the draft runs, so a
/// query of block 0 must not learn to attend to its own. Query 0 sees no key; its cross attention adds zero.
///
/// Throws std::invalid_argument from every function unless block >= 1 and query >= 0. Cost: O(1). Source:
/// GLIDE with a CAPE (Du et al. 2024), section 4.1; there `block` is 5.
struct BlockMask {
  std::int32_t block = 5;  ///< tokens

  /// Throws std::invalid_argument unless block >= 1.
  void validate() const {
    if (block < 1)
      throw std::invalid_argument(
          std::string("BlockMask: block is ").append(std::to_string(block)).append(", must be >= 1"));
  }

  /// Number of the target's keys that the query at position `query` sees: those at [0, visible).
  std::int32_t visible(std::int32_t query) const {
    validate();
    if (query < 0)
      throw std::invalid_argument(
          std::string("BlockMask: the query is ").append(std::to_string(query)).append(", must be >= 0"));
    return query < block ? query : query - query % block;
  }

  /// The draft step of a round that the query trains, 1 for the step at the root. All of block 0 trains step
  /// 1.
  std::int32_t step(std::int32_t query) const { return query - visible(query) + 1; }
};

}  // namespace specula
