#include "plain.hpp"

#include <cmath>
#include <limits>

namespace specula_train::plain {

using torch::Tensor;

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, torch::ScalarType dtype) {
  return (x * torch::rsqrt(x.square().mean(-1, true) + epsilon) * weight).to(dtype);
}

Tensor swiglu(const Tensor& gate_up) {
  const auto parts = gate_up.chunk(2, -1);
  return torch::silu(parts[0]) * parts[1];
}

Tensor causal_softmax(const Tensor& scores) {
  const auto length = scores.size(-1);
  const auto hidden = torch::ones({length, length}, scores.options().dtype(torch::kBool)).triu(1);
  return torch::softmax(scores.masked_fill(hidden, -std::numeric_limits<float>::infinity()), -1);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& expected) {
  return torch::nn::functional::cross_entropy(logits.to(torch::kFloat32), expected);
}

AttentionInputs rotate_and_split(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                                 const RotaryTable& table) {
  const auto length = qkv.size(1), size = qkv.size(3), outer = qkv.size(0) * kv_heads;
  const auto cosine = table.cosine.narrow(0, 0, length).unsqueeze(1);  // (T, 1, D / 2): for all heads
  const auto sine = table.sine.narrow(0, 0, length).unsqueeze(1);
  const auto rotate = [&](const Tensor& x) {
    const auto halves = x.to(torch::kFloat32).chunk(2, -1);
    return torch::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1);
  };
  const auto by_head = [&](const Tensor& x) {
    return x.to(qkv.scalar_type()).transpose(1, 2).reshape({outer, -1, size});
  };
  const auto parts = torch::split_with_sizes(qkv, {heads, kv_heads, kv_heads}, 2);
  return {by_head(rotate(parts[0]) / std::sqrt(static_cast<double>(size))), by_head(rotate(parts[1])),
          by_head(parts[2])};
}

}  // namespace specula_train::plain
