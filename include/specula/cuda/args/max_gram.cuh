// SPDX-License-Identifier: MIT
// Arguments of n-gram speculation.
#pragma once

#include <cstdint>

#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// Capacities of the batches, known to the host.
struct MaxGramCapacity {
  int sequences = 1;  ///< B
  int tokens = 0;     ///< of a text, the root included, at most
  int vocab = 0;      ///< V
};

/// Which matches count, as specula::MaxGramOptions.
struct MaxGramOptions {
  std::int32_t draft_tokens = 10;  ///< k: at most n per text
  std::int32_t min_match = 1;      ///< tokens; a shorter match is none
  std::int32_t max_match = 0;      ///< longest suffix to search for; 0: any
  /// Where the occurrence ends the committed tokens: copy on from root and draft tokens.
  bool past_end = false;
};

/// B texts and their draft tokens; all arrays on the device.
struct MaxGramBatch {
  const Token* tokens;         ///< (B, .) committed tokens, then the root; rows `stride` elements apart
  std::int64_t stride;         ///< elements between texts
  const std::int32_t* length;  ///< (B) of a text, the root included; outside 1 .. capacity: no draft token
  const Token* bigram;         ///< (V) the likeliest token after each, -1: none; null: no bigrams
  Token* draft_token;          ///< (B, k) -1 after the last
  std::int32_t* count;         ///< (B) draft tokens
  std::int32_t* match;         ///< (B) length of the first match; 0: a bigram's draft token, or none
  const std::int32_t* sequence_count = nullptr;  ///< texts in this call, at most B, as Trees has it
};

namespace detail {

/// Whether the capacities are in range: see make_max_gram_plan().
inline bool is_max_gram(const MaxGramCapacity& capacity, const MaxGramOptions& options) {
  return capacity.sequences >= 1 && capacity.tokens >= 1 && capacity.tokens <= 1 << 30 &&
         capacity.vocab >= 1 && options.draft_tokens >= 0 && options.draft_tokens <= 4096 &&
         options.min_match >= 1 && (options.max_match == 0 || options.max_match >= options.min_match);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
