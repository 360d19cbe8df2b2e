// SPDX-License-Identifier: MIT
// Rotary positions, and the layout of attention's inputs.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <specula/cpu/decoder_config.hpp>

#include "attention.hpp"

namespace specula_train {

/// Cosines and sines of the rotary positions 0 .. length - 1, (length, head_dim / 2), float32. Pair i is
/// made of dimensions i and i + head_dim / 2, as in Hugging Face; its frequency, scaled or not, and the
/// factor of cosines and sines are those of specula::cpu::Decoder.
struct RotaryTable {
  torch::Tensor cosine, sine;
};
RotaryTable make_rotary_table(std::int64_t length, const specula::cpu::AttentionShape& shape,
                              torch::Device device);

/// Attention's inputs, laid out for batched products: the queries of a group of heads are stacked over
/// the keys and values that they share, instead of copying those.
struct AttentionInputs {
  torch::Tensor q;  // (B * kv_heads, group * T, head_dim), rotated and divided by sqrt(head_dim)
  KeyValues keys;
};

/// One loop on a CPU, plain.hpp elsewhere. qkv (B, T, heads + 2 * kv_heads, head_dim): queries, keys, values.
AttentionInputs rotate_and_split(const torch::Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                                 const RotaryTable& table);

/// Queries alone, for keys of another model. q (B, T, heads, head_dim) -> (B * heads, T, head_dim), rotated
/// and divided by sqrt(head_dim).
torch::Tensor rotate_queries(const torch::Tensor& q, const RotaryTable& table);

}  // namespace specula_train
