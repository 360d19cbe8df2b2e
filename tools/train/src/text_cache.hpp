// SPDX-License-Identifier: MIT
// Many texts that grow by a token each at a time, and attention over what they have so far.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "attention.hpp"

namespace specula_train {

/// Keys and values of texts, each with a length of its own. A text's place is used again by setting its
/// length to 0.
struct TextCache {
  static constexpr std::int64_t kBlock =
      64;  ///< positions whose keys are interleaved, so that scores are vectors

  /// Of one layer: k (kv_heads, texts, blocks, head_dim, kBlock), v (kv_heads, texts, blocks * kBlock,
  /// head_dim).
  std::vector<KeyValues> layers;
  torch::Tensor lengths;  // (texts) int64, on the CPU: tokens of each text
};

/// Stores one more key and value a text at its length, and attends to that and all before it. q (kv_heads,
/// group * texts, head_dim) and now (kv_heads, texts, head_dim) as rotate_and_split() makes them of one row
/// of `texts` positions; lengths (texts) int64 on q's device, each below the capacity. Returns the mixed
/// values in q's layout. On a CPU it is one loop, which reads no more of a text than it has.
torch::Tensor attend_texts(const torch::Tensor& q, const KeyValues& now, KeyValues& cache,
                           const torch::Tensor& lengths);

namespace plain {
torch::Tensor attend_texts(const torch::Tensor& q, const KeyValues& now, KeyValues& cache,
                           const torch::Tensor& lengths);
}  // namespace plain

}  // namespace specula_train
