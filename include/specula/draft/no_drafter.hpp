// SPDX-License-Identifier: MIT
// Plain decoding as a drafter that proposes nothing: the baseline for a pipeline.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"

namespace specula {

///   specula::NoDrafter drafter{vocab};
///
/// Every proposal is the root alone, so each round is one target call and emits one token: the baseline of a
/// pipeline, with the same code and the same uniform draws.
/// **Draws.** Nothing. **Cost.** Nothing. **Throws.** Constructor: std::invalid_argument unless vocab >= 1.
/// **Source.** Nothing: plain decoding.
class NoDrafter {
 public:
  /// Throws std::invalid_argument unless vocab >= 1.
  explicit NoDrafter(std::int32_t vocab) : vocab_(vocab) {
    detail::expect_in("NoDrafter: the vocabulary", vocab, 1, std::numeric_limits<std::int32_t>::max());
  }
  std::int32_t vocab_size() const { return vocab_; }  ///< size V of the vocabulary
  std::int32_t capacity() const { return std::numeric_limits<std::int32_t>::max(); }  ///< no limit
  void truncate(std::int32_t) {}                                                      ///< nothing to drop
  void sync(Tokens, Tokens) {}  ///< nothing to bring up to date
  /// kNoToken for each node.
  PointMasses extend(Tokens tokens, Nodes) {
    nothing_.assign(tokens.size(), kNoToken);
    return {nothing_};
  }

 private:
  std::int32_t vocab_;
  std::vector<Token> nothing_;
};

}  // namespace specula
