// SPDX-License-Identifier: MIT
// Attention with a number of visible keys per query.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace specula_train {

/// Keys and values of one layer, (B * kv_heads, T, head_dim), the keys rotated.
struct KeyValues {
  torch::Tensor k, v;
};

/// One additional key for every query: query t sees key t - lag.
struct LaggedKey {
  KeyValues from;
  std::int64_t lag;
  torch::Tensor hidden;  // (T) bool: the queries that do not see it, among them those before position `lag`
};

/// Query t sees the keys 0 .. visible[t] - 1, and one of each of `more`. q (B * kv_heads, group * T,
/// head_dim), divided by sqrt(head_dim), as rotate_and_split() makes it; visible (T) int64. Returns the mixed
/// values in q's layout; zeros where nothing is seen.
torch::Tensor attend(const torch::Tensor& q, const KeyValues& keys, const torch::Tensor& visible,
                     const std::vector<LaggedKey>& more = {});

/// Mixed values (B * kv_heads, group * T, head_dim) -> (B, T, heads * head_dim).
torch::Tensor join_heads(const torch::Tensor& mixed, std::int64_t batch, std::int64_t length);

/// value(t) for every position t, (T) int64.
template <class Value>
torch::Tensor by_position(std::int64_t length, torch::Device device, const Value& value) {
  std::vector<std::int64_t> values;
  for (std::int32_t t = 0; t < length; ++t) values.push_back(value(t));
  return torch::tensor(values, torch::kInt64).to(device);
}

/// Query t sees key t and all before it. (T) int64.
torch::Tensor causal(std::int64_t length, torch::Device device);

}  // namespace specula_train
