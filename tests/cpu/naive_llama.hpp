// SPDX-License-Identifier: MIT
// A Llama decoder transcribed from the equations of transformers' modeling_llama.py, with the additional
// parts of Qwen2, of Qwen3 and of conditioned drafts: plain loops in double, no cache, no panels, nothing
// shared with the library but the config and the numbers in the weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "specula/cpu/decoder_weights.hpp"

namespace specula_test {

using Vector = std::vector<double>;

/// A token, and what it attends to: columns, itself among them, and the first keys of the target; its input
/// feature, if any.
struct NaiveColumn {
  std::int32_t token;
  std::size_t position;
  std::vector<std::size_t> sees;
  std::size_t target_keys = 0;
  Vector feature = {};
};

/// The largest of a query's weights of `keys` keys.
struct NaivePeak {
  double weight;
  std::size_t keys;
};

/// Everything about every column: keys (rotated), values and layer outputs by layer and column, the LM head's
/// input, logits; of every query, column by column, how its weights are spread.
struct NaiveStates {
  std::vector<std::vector<Vector>> keys, values, hidden;
  std::vector<Vector> features, logits;
  std::vector<NaivePeak> peaks;
};

/// The mean of the largest weights of queries that see several keys: from near 0, where all weigh alike,
/// to 1.
inline double mean_peak(const NaiveStates& states) {
  double sum = 0, count = 0;
  for (const NaivePeak& peak : states.peaks)
    if (peak.keys > 1) sum += peak.weight, ++count;
  return sum / count;
}
/// Whether every query weighs its keys alike.
inline bool all_alike(const NaiveStates& states) {
  return std::all_of(states.peaks.begin(), states.peaks.end(), [](const NaivePeak& peak) {
    return std::abs(peak.weight * static_cast<double>(peak.keys) - 1) < 1e-12;
  });
}

inline NaiveStates naive_columns(const specula::cpu::DecoderWeights<double>& weights,
                                 const std::vector<NaiveColumn>& columns,
                                 const NaiveStates* target = nullptr) {
  using specula::Conditioning;
  using specula::cpu::PanelMatrix;
  const auto& config = weights.config;
  const auto length = columns.size();
  const auto as_size = [](std::int32_t n) { return static_cast<std::size_t>(n); };
  const auto hidden = as_size(config.hidden_size), head_dim = as_size(config.head_dim),
             heads = as_size(config.heads), kv_heads = as_size(config.kv_heads),
             intermediate = as_size(config.intermediate_size);

  std::map<const PanelMatrix<double>*, Vector> expanded;  // rows, which take long to look up number by number
  const auto times = [&](const PanelMatrix<double>& matrix, std::size_t first, std::size_t rows,
                         const Vector& x) {
    Vector& all = expanded[&matrix];
    for (std::int32_t r = 0; all.size() < as_size(matrix.rows()) * x.size(); ++r) {
      all.resize(all.size() + x.size());
      matrix.get_row(r, all.data() + all.size() - x.size());
    }
    Vector y(rows);
    // By pointer: without optimisation each use of an iterator is a call.
    const double* row = all.data() + first * x.size();
    for (double& sum : y)
      for (const double value : x) sum += value * *row++;
    return y;
  };
  const auto norm = [&](const Vector& x, const auto& weight) {
    double square = 0;
    for (const double value : x) square += value * value / static_cast<double>(x.size());
    Vector y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = weight[i] * x[i] / std::sqrt(square + config.rms_norm_eps);
    return y;
  };
  const auto add_bias = [](Vector& x, const auto& bias, std::size_t first) {
    if (!bias.empty())
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += bias[first + i];
  };
  const auto norm_heads = [&](Vector& x, const auto& weight) {
    if (weight.empty()) return;
    for (auto head = x.begin(); head != x.end(); head += config.head_dim) {
      const Vector y = norm(Vector(head, head + config.head_dim), weight);
      std::copy(y.begin(), y.end(), head);
    }
  };
  // x * cos + rotate_half(x) * sin
  const auto rope = [](const specula::cpu::AttentionShape& shape, Vector& x, std::size_t heads_of_x,
                       std::size_t position) {
    const auto size = static_cast<std::size_t>(shape.head_dim), half = size / 2;
    for (std::size_t h = 0; h < heads_of_x; ++h) {
      Vector turned(size);
      for (std::size_t d = 0; d < size; ++d) {
        const double angle =
            static_cast<double>(position) /
            std::pow(shape.rope_theta, 2.0 * static_cast<double>(d % half) / static_cast<double>(size)) /
            (shape.rope_scaling.type == specula::cpu::RopeType::linear ? shape.rope_scaling.factor : 1);
        const double other = d < half ? -x[h * size + d + half] : x[h * size + d - half];
        turned[d] = (x[h * size + d] * std::cos(angle) + other * std::sin(angle)) *
                    shape.rope_scaling.attention_factor;
      }
      for (std::size_t d = 0; d < size; ++d) x[h * size + d] = turned[d];
    }
  };
  NaiveStates out;
  // Softmax attention of one query over the keys of `seen`; nothing where there are none.
  const auto attend = [&](const specula::cpu::AttentionShape& shape, const Vector& query,
                          const std::vector<Vector>& keys, const std::vector<Vector>& values,
                          const std::vector<std::size_t>& seen) {
    const auto size = as_size(shape.head_dim), all = as_size(shape.heads), group = as_size(shape.group());
    Vector mixed(all * size);
    for (std::size_t h = 0; h < all; ++h) {
      const std::size_t kv = h / group;
      if (seen.empty()) continue;
      Vector weight;
      for (const std::size_t s : seen) {
        double dot = 0;
        for (std::size_t d = 0; d < size; ++d) dot += query[h * size + d] * keys[s][kv * size + d];
        weight.push_back(dot / std::sqrt(static_cast<double>(size)));
      }
      const double largest = *std::max_element(weight.begin(), weight.end());
      for (double& w : weight) w = std::exp(w - largest);
      const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
      out.peaks.push_back({1 / total, seen.size()});
      for (std::size_t i = 0; i < seen.size(); ++i)
        for (std::size_t d = 0; d < size; ++d)
          mixed[h * size + d] += weight[i] / total * values[seen[i]][kv * size + d];
    }
    return mixed;
  };

  std::vector<Vector> state(length, Vector(hidden));
  const auto& embedding = config.borrows_embedding() ? weights.target->embedding : weights.embedding;
  for (std::size_t t = 0; t < length; ++t) {
    state[t].resize(as_size(embedding.cols()));
    for (std::size_t k = 0; k < state[t].size(); ++k)
      state[t][k] = embedding.value(columns[t].token, static_cast<std::int32_t>(k));
    if (config.target_hidden_size > 0) state[t] = times(weights.embed_projection, 0, hidden, state[t]);
  }
  if (config.conditioned_on == Conditioning::features) {
    for (std::size_t t = 0; t < length; ++t) {
      Vector both = state[t];
      both.insert(both.end(), columns[t].feature.begin(), columns[t].feature.end());
      both.resize(2 * hidden);
      state[t] = times(weights.feature_input->fusion, 0, hidden, both);
      for (std::size_t k = 0; k < hidden; ++k) state[t][k] += weights.feature_input->bias[k];
    }
  }

  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    const auto& layer = weights.layers[l];
    std::vector<Vector> q(length), k(length), v(length);
    for (std::size_t t = 0; t < length; ++t) {
      const Vector x = layer.attention.norm.empty() ? state[t] : norm(state[t], layer.attention.norm);
      q[t] = times(layer.attention.qkv, 0, heads * head_dim, x);
      k[t] = times(layer.attention.qkv, heads * head_dim, kv_heads * head_dim, x);
      v[t] = times(layer.attention.qkv, (heads + kv_heads) * head_dim, kv_heads * head_dim, x);
      add_bias(q[t], layer.attention.qkv_bias, 0);
      add_bias(k[t], layer.attention.qkv_bias, heads * head_dim);
      add_bias(v[t], layer.attention.qkv_bias, (heads + kv_heads) * head_dim);
      norm_heads(q[t], layer.attention.query_norm);
      norm_heads(k[t], layer.attention.key_norm);
      rope(config, q[t], heads, columns[t].position);
      rope(config, k[t], kv_heads, columns[t].position);
    }
    for (std::size_t t = 0; t < length; ++t) {
      const auto add = [&](const Vector& y) {
        for (std::size_t i = 0; i < hidden; ++i) state[t][i] += y[i];
      };
      Vector mixed = times(layer.attention.output, 0, hidden, attend(config, q[t], k, v, columns[t].sees));
      add_bias(mixed, layer.attention.output_bias, 0);
      add(mixed);
      if (config.conditioned_on == Conditioning::key_values) {
        const auto& shape = config.target;
        const std::size_t from = shape.reads.empty() ? as_size(shape.layers - config.layers) + l
                                                     : as_size(shape.reads[l]),
                          width = as_size(shape.heads * shape.head_dim);
        Vector query = times(layer.cross_attention->query, 0, width, state[t]);
        rope(shape, query, as_size(shape.heads), columns[t].position);
        std::vector<std::size_t> seen(columns[t].target_keys);
        std::iota(seen.begin(), seen.end(), std::size_t{0});
        add(times(layer.cross_attention->output, 0, hidden,
                  attend(shape, query, target->keys[from], target->values[from], seen)));
      }
      const Vector x = norm(state[t], layer.mlp.norm), gate = times(layer.mlp.gate_up, 0, intermediate, x),
                   up = times(layer.mlp.gate_up, intermediate, intermediate, x);
      Vector active(intermediate);
      for (std::size_t i = 0; i < intermediate; ++i) active[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      add(times(layer.mlp.down, 0, hidden, active));
    }
    out.keys.push_back(k);
    out.values.push_back(v);
    out.hidden.push_back(state);
  }
  for (std::size_t t = 0; t < length; ++t) {
    out.features.push_back(weights.final_norm.empty() ? state[t] : norm(state[t], weights.final_norm));
    const bool borrows = config.conditioned_on == Conditioning::features;
    const auto& owner = borrows ? *weights.target : weights;
    const auto& head = owner.config.tied_head ? owner.embedding : owner.separate_head;
    const std::vector<std::int32_t>& some = weights.draft_tokens;
    Vector logits(as_size(config.vocab_size), -std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < (some.empty() ? logits.size() : some.size()); ++i) {
      const std::size_t token = some.empty() ? i : as_size(some[i]);
      logits[token] = times(head, borrows ? token : i, 1, out.features[t])[0];
    }
    out.logits.push_back(logits);
  }
  return out;
}

/// A head's input from the target at token t: the feature, or a matrix's product of the hidden states and it.
inline Vector naive_feature(const specula::cpu::DecoderWeights<double>& head, const NaiveStates& target,
                            std::size_t t) {
  Vector read;
  for (const std::int32_t layers : head.config.feature_layers) {
    const Vector& state = target.hidden[static_cast<std::size_t>(layers - 1)][t];
    double square = 0;
    for (const double x : state) square += x * x / static_cast<double>(state.size());
    for (const double x : state) read.push_back(x / std::sqrt(square + head.config.rms_norm_eps));
  }
  read.insert(read.end(), target.features[t].begin(), target.features[t].end());
  if (head.config.feature_layers.empty()) return read;
  Vector feature(static_cast<std::size_t>(head.config.hidden_size));
  for (std::size_t r = 0; r < feature.size(); ++r)
    for (std::size_t k = 0; k < read.size(); ++k)
      feature[r] +=
          head.feature_input->states.value(static_cast<std::int32_t>(r), static_cast<std::int32_t>(k)) *
          read[k];
  return feature;
}

/// A text. A draft sees all of `target`, which may have computed fewer tokens: then a head uses its own
/// feature.
inline NaiveStates naive_states(const specula::cpu::DecoderWeights<double>& weights,
                                const std::vector<std::int32_t>& tokens,
                                const NaiveStates* target = nullptr) {
  const std::size_t size = target ? target->features.size() : 0;
  const bool is_head = weights.config.conditioned_on == specula::Conditioning::features;
  std::vector<NaiveColumn> columns;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    NaiveColumn column{tokens[t], t, {}, std::min(t, size)};
    if (is_head && t > 0)
      column.feature = t <= size ? naive_feature(weights, *target, t - 1)
                                 : naive_columns(weights, columns, target).features[t - 1];
    for (std::size_t s = 0; s <= t; ++s) column.sees.push_back(s);
    columns.push_back(column);
  }
  return naive_columns(weights, columns, target);
}

/// The logits after the last of `tokens`.
inline Vector naive_llama(const specula::cpu::DecoderWeights<double>& weights,
                          const std::vector<std::int32_t>& tokens) {
  return naive_states(weights, tokens).logits.back();
}

}  // namespace specula_test
