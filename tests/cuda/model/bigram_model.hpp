// SPDX-License-Identifier: MIT
// Models on a device without layers: the next token's logits depend on the last token alone, as a table says.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <specula/cuda/model/device_weights.hpp>

namespace bigram_model {

inline constexpr int kTokens = 4;
/// The probability of each token after each.
using Table = std::array<std::array<double, kTokens>, kTokens>;

/// Two that differ.
inline constexpr Table kTarget{
    {{0.55, 0.15, 0.2, 0.1}, {0.1, 0.3, 0.35, 0.25}, {0.05, 0.6, 0.05, 0.3}, {0.4, 0.1, 0.1, 0.4}}};
inline constexpr Table kDraft{
    {{0.25, 0.45, 0.2, 0.1}, {0.3, 0.3, 0.1, 0.3}, {0.2, 0.2, 0.5, 0.1}, {0.1, 0.2, 0.3, 0.4}}};

/// A model of `table`, up to bfloat16. After the token `broken` its row is NaN.
template <class Device>
specula::cuda::DeviceWeights weights_of(Device& device, const Table& table, int positions, int broken = -1) {
  using specula::cuda::BFloat16;
  using specula::cuda::detail::to_bfloat16;
  constexpr int kWidth = 8;  // the norm of a unit vector is sqrt(kWidth) of it
  std::vector<BFloat16> embedding(kTokens * kWidth), head(kTokens * kWidth);
  for (int before = 0; before < kTokens; ++before) {
    embedding[static_cast<std::size_t>(before * kWidth + before)] =
        to_bfloat16(before == broken ? std::numeric_limits<float>::quiet_NaN() : 1);
    for (int next = 0; next < kTokens; ++next)
      head[static_cast<std::size_t>(next * kWidth + before)] = to_bfloat16(static_cast<float>(
          std::log(table[static_cast<std::size_t>(before)][static_cast<std::size_t>(next)]) /
          std::sqrt(static_cast<double>(kWidth))));
  }
  const auto copied = [&](const auto& values) {
    auto* const to =
        device.template allocate<typename std::remove_cvref_t<decltype(values)>::value_type>(values.size());
    device.put(to, values.data(), values.size());
    return to;
  };
  specula::cuda::DeviceWeights out;
  out.hidden = kWidth, out.intermediate = 8, out.heads = out.kv_heads = 1;
  out.head_size = out.head_dim = 64, out.vocab = kTokens, out.positions = positions;
  out.embedding = {copied(embedding), kTokens, kWidth}, out.head = {copied(head), kTokens, kWidth};
  out.final_norm = copied(std::vector<float>(kWidth, 1.0f));
  return out;
}

/// What a model of `table` has as probabilities, after rounding.
inline Table rounded(const Table& table) {
  using namespace specula::cuda::detail;
  Table out = table;
  for (auto& row : out) {
    double sum = 0;
    for (double& p : row) {
      const auto weight =
          static_cast<double>(to_float(to_bfloat16(static_cast<float>(std::log(p) / std::sqrt(8.0)))));
      // The norm of an embedding, sqrt(8), is rounded to bfloat16 as well.
      p = std::exp(weight * static_cast<double>(to_float(to_bfloat16(static_cast<float>(std::sqrt(8.0))))));
      sum += p;
    }
    for (double& p : row) p /= sum;
  }
  return out;
}

}  // namespace bigram_model
