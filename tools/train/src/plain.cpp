// SPDX-License-Identifier: MIT
#include "plain.hpp"

#include <cmath>
#include <limits>

namespace specula_train::plain {

using torch::Tensor;

namespace {

/// x (B, T, heads, D) -> the same, rotated, in float32.
Tensor rotate(const Tensor& x, const RotaryTable& table) {
  const auto length = x.size(1);
  const auto cosine = table.cosine.narrow(0, 0, length).unsqueeze(1);  // (T, 1, D / 2): for all heads
  const auto sine = table.sine.narrow(0, 0, length).unsqueeze(1);
  const auto halves = x.to(torch::kFloat32).chunk(2, -1);
  return torch::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1);
}

/// (B, T, heads, D) -> (B * heads, T, D), contiguous: of one row, reshape() would give a view.
Tensor by_head(const Tensor& x, torch::ScalarType dtype) {
  return x.to(dtype).transpose(1, 2).contiguous().view({x.size(0) * x.size(2), x.size(1), x.size(3)});
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, torch::ScalarType dtype) {
  return (x * torch::rsqrt(x.square().mean(-1, true) + epsilon) * weight).to(dtype);
}

Tensor swiglu(const Tensor& gate_up) {
  const auto parts = gate_up.chunk(2, -1);
  return torch::silu(parts[0]) * parts[1];
}

AttentionWeights masked_softmax(const Tensor& scores, const Tensor& visible, const Tensor& tail) {
  constexpr auto kHidden = -std::numeric_limits<float>::infinity();
  const auto columns = scores.size(-1);
  const auto hidden = torch::arange(columns, visible.options()) >= visible.unsqueeze(-1);  // (T, columns)
  auto all = scores.masked_fill(hidden, kHidden);
  if (tail.defined()) all = torch::cat({all, tail}, -1);
  const auto blind = (all == kHidden).all(-1, true);
  const auto weights = torch::softmax(all.masked_fill(blind, 0), -1).masked_fill(blind, 0);
  if (!tail.defined()) return {weights, {}};
  return {weights.narrow(-1, 0, columns), weights.narrow(-1, columns, tail.size(-1))};
}

Tensor cross_entropy(const Tensor& logits, const Tensor& expected) {
  const auto options = torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-1);
  return torch::nn::functional::cross_entropy(logits.to(torch::kFloat32), expected, options);
}

AttentionInputs rotate_and_split(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                                 const RotaryTable& table) {
  const auto size = qkv.size(3), outer = qkv.size(0) * kv_heads;
  const auto parts = torch::split_with_sizes(qkv, {heads, kv_heads, kv_heads}, 2);
  return {plain::rotate_queries(parts[0], table).reshape({outer, -1, size}),
          {by_head(rotate(parts[1], table), qkv.scalar_type()), by_head(parts[2], qkv.scalar_type())}};
}

Tensor rotate_queries(const Tensor& q, const RotaryTable& table) {
  return by_head(rotate(q, table) / std::sqrt(static_cast<double>(q.size(3))), q.scalar_type());
}

}  // namespace specula_train::plain
