// SPDX-License-Identifier: MIT
// Arguments of layer similarity.
#pragma once

#include <cstdint>

namespace specula {
namespace cuda {

/// Capacities of the calls, known to the host.
struct SimilarityCapacity {
  int tokens = 0;     ///< T, of all sequences of a call together, at most
  int sequences = 1;  ///< B
  int layers = 1;     ///< L
  int hidden = 0;     ///< width of the residual stream
};

/// Where the tokens of a call lie.
struct SimilarityTokens {
  const std::int32_t* begin;   ///< (B + 1) on the device: rows of sequence b are begin[b] .. begin[b + 1] - 1
  std::int64_t before_stride,  ///< elements from one token's row to the next, before the block
      after_stride;            ///< and after it
  int first_layer = 0,         ///< the first layer of this call, from 0
      layers = 1;              ///< layers of this call
};

/// The cosines of a sequence's tokens at one block, summed as integers: the sum is the same to the last bit
/// for any order, launches and chunks of a prompt. Must be zero at first (cudaMemsetAsync).
struct SimilaritySum {
  unsigned long long cosines;  ///< in units of 2^-36, two's complement
  unsigned long long tokens;   ///< token count; the upper 32 bits count tokens whose cosine is NaN
};

namespace detail {

inline bool is_similarity(const SimilarityCapacity& capacity) {
  return capacity.tokens >= 1 && capacity.sequences >= 1 && capacity.layers >= 1 && capacity.hidden >= 1;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
