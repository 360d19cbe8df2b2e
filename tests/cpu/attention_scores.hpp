// SPDX-License-Identifier: MIT
// Attention scores of other sizes than random weights have: all alike, steep, or one far above the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "specula/cpu/decoder_weights.hpp"

namespace specula_test {

/// Factors of queries and of keys, powers of two so that bfloat16 is exact. Random weights have scores around
/// 1; these make weights all alike, a few large ones, and one alone.
inline constexpr float kFlat = 0, kRandom = 1, kSteep = 4, kPeaked = 1024;
inline constexpr float kScores[] = {kFlat, kRandom, kSteep, kPeaked};

/// Multiplies all queries and keys by `factor`: their rows of the matrices, or the weights of their norms.
template <class Real>
specula::cpu::DecoderWeights<Real> with_scores(specula::cpu::DecoderWeights<Real> weights, float factor) {
  const auto scale_rows = [&](specula::cpu::PanelMatrix<Real>& matrix, std::int32_t rows) {
    std::vector<Real> row(static_cast<std::size_t>(matrix.cols()));
    for (std::int32_t r = 0; r < rows; ++r) {
      matrix.get_row(r, row.data());
      std::vector<float> scaled;
      for (const Real value : row) scaled.push_back(factor * static_cast<float>(value));
      matrix.set_row(r, scaled);
    }
  };
  const auto scale = [&](auto& values, std::size_t count) {
    for (std::size_t i = 0; i < count && !values.empty(); ++i) values[i] *= static_cast<Real>(factor);
  };
  const auto& config = weights.config;
  for (auto& layer : weights.layers) {
    auto& attention = layer.attention;
    if (config.query_key_norms) {
      for (auto* norm : {&attention.query_norm, &attention.key_norm}) scale(*norm, norm->size());
    } else {
      const std::int32_t rows = (config.heads + config.kv_heads) * config.head_dim;
      scale_rows(attention.qkv, rows);
      scale(attention.qkv_bias, static_cast<std::size_t>(rows));
    }
    if (layer.cross_attention) scale_rows(layer.cross_attention->query, layer.cross_attention->query.rows());
  }
  return weights;
}

}  // namespace specula_test
