// A Llama decoder transcribed from the equations of transformers' modeling_llama.py: plain loops in double,
// one sequence, no cache, no panels, nothing shared with the library but the config and the numbers in the
// weights.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "specula/eigen/llama_weights.hpp"

namespace specula_test {

using Vector = std::vector<double>;

/// The logits after the last of `tokens`.
inline Vector naive_llama(const specula::eigen::LlamaWeights<double>& weights,
                          const std::vector<std::int32_t>& tokens) {
  using specula::eigen::PanelMatrix;
  const auto& config = weights.config;
  const auto length = tokens.size();
  const auto as_size = [](std::int32_t n) { return static_cast<std::size_t>(n); };
  const auto hidden = as_size(config.hidden_size), head_dim = as_size(config.head_dim),
             heads = as_size(config.heads), kv_heads = as_size(config.kv_heads),
             intermediate = as_size(config.intermediate_size);

  const auto times = [&](const PanelMatrix<double>& matrix, std::size_t first, std::size_t rows,
                         const Vector& x) {
    Vector y(rows);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t k = 0; k < x.size(); ++k)
        y[r] += matrix.value(static_cast<std::int32_t>(first + r), static_cast<std::int32_t>(k)) * x[k];
    return y;
  };
  const auto norm = [&](const Vector& x, const auto& weight) {
    double square = 0;
    for (const double value : x) square += value * value / static_cast<double>(hidden);
    Vector y(hidden);
    for (std::size_t i = 0; i < hidden; ++i)
      y[i] = weight[i] * x[i] / std::sqrt(square + config.rms_norm_eps);
    return y;
  };
  // x * cos + rotate_half(x) * sin
  const auto rope = [&](Vector& x, std::size_t heads_of_x, std::size_t position) {
    for (std::size_t h = 0; h < heads_of_x; ++h) {
      Vector turned(head_dim);
      for (std::size_t d = 0; d < head_dim; ++d) {
        const std::size_t half = head_dim / 2;
        const double angle =
            static_cast<double>(position) /
            std::pow(config.rope_theta, 2.0 * static_cast<double>(d % half) / static_cast<double>(head_dim));
        const double other = d < half ? -x[h * head_dim + d + half] : x[h * head_dim + d - half];
        turned[d] = x[h * head_dim + d] * std::cos(angle) + other * std::sin(angle);
      }
      for (std::size_t d = 0; d < head_dim; ++d) x[h * head_dim + d] = turned[d];
    }
  };

  std::vector<Vector> state(length, Vector(hidden));
  for (std::size_t t = 0; t < length; ++t)
    for (std::size_t k = 0; k < hidden; ++k)
      state[t][k] = weights.embedding.value(tokens[t], static_cast<std::int32_t>(k));

  for (const auto& layer : weights.layers) {
    std::vector<Vector> q(length), k(length), v(length);
    for (std::size_t t = 0; t < length; ++t) {
      const Vector x = norm(state[t], layer.attention_norm);
      q[t] = times(layer.qkv, 0, heads * head_dim, x);
      k[t] = times(layer.qkv, heads * head_dim, kv_heads * head_dim, x);
      v[t] = times(layer.qkv, (heads + kv_heads) * head_dim, kv_heads * head_dim, x);
      rope(q[t], heads, t);
      rope(k[t], kv_heads, t);
    }
    for (std::size_t t = 0; t < length; ++t) {
      Vector mixed(heads * head_dim);
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t kv = h / (heads / kv_heads);
        Vector weight(t + 1);
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (std::size_t d = 0; d < head_dim; ++d) dot += q[t][h * head_dim + d] * k[s][kv * head_dim + d];
          total += weight[s] = std::exp(dot / std::sqrt(static_cast<double>(head_dim)));
        }
        for (std::size_t s = 0; s <= t; ++s)
          for (std::size_t d = 0; d < head_dim; ++d)
            mixed[h * head_dim + d] += weight[s] / total * v[s][kv * head_dim + d];
      }
      const Vector out = times(layer.output, 0, hidden, mixed);
      for (std::size_t i = 0; i < hidden; ++i) state[t][i] += out[i];
      const Vector x = norm(state[t], layer.mlp_norm), gate = times(layer.gate_up, 0, intermediate, x),
                   up = times(layer.gate_up, intermediate, intermediate, x);
      Vector active(intermediate);
      for (std::size_t i = 0; i < intermediate; ++i) active[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      const Vector down = times(layer.down, 0, hidden, active);
      for (std::size_t i = 0; i < hidden; ++i) state[t][i] += down[i];
    }
  }
  return times(config.tied_head ? weights.embedding : weights.separate_head, 0, as_size(config.vocab_size),
               norm(state[length - 1], weights.final_norm));
}

}  // namespace specula_test
