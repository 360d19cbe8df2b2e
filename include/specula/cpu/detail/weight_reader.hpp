// SPDX-License-Identifier: MIT
// Reads matrices, vectors and layers of weights by name, from whatever has them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/panel_matrix.hpp"

namespace specula::cpu::detail {

/// One tensor of a checkpoint: its name and shape there.
struct TensorName {
  std::string name;
  std::int32_t rows;
};

/// Reads matrices and vectors of weights from a `source` of tensors by Hugging Face name:
///   source.draft_tokens(config)                  the tokens of the draft vocabulary, if there is one
///   source.stored(name, rows, cols)              how a tensor of a matrix is stored
///   source.fill(name, rows, cols, matrix, first) sets the matrix's rows from `first` on
///   source.rows(name, shape, take(r, row))       calls take per row of a vector
///   source.name_of(name)                         the file's name of an EAGLE-3 head's tensor
template <class Real, class Source>
class WeightReader {
 public:
  explicit WeightReader(Source& source) : source_(source) {}

  PanelMatrix<Real> matrix(std::initializer_list<TensorName> parts, std::int32_t cols) {
    std::vector<RowRange> ranges;  // neighbours that are stored alike are one
    bool whole_panels = true;
    for (const auto& part : parts) {
      const StoredType stored = source_.stored(part.name, part.rows, cols);
      if (ranges.empty() || !(ranges.back().stored == stored)) {
        whole_panels = whole_panels && (ranges.empty() || ranges.back().rows % kPanel == 0);
        ranges.push_back({0, stored});
      }
      ranges.back().rows += part.rows;
    }
    if (!whole_panels) {  // no model that people use; its rows are expanded
      RowRange all{0, {}};
      for (const RowRange& range : ranges) all.rows += range.rows;
      ranges = {all};
    }
    PanelMatrix<Real> result(ranges, cols, arena_);
    std::int32_t first = 0;
    for (const auto& part : parts) {
      source_.fill(part.name, part.rows, cols, result, first);
      first += part.rows;
    }
    return result;
  }
  AlignedVector<Real> vectors(std::initializer_list<TensorName> parts) {
    std::int32_t size = 0, first = 0;
    for (const auto& part : parts) size += part.rows;
    AlignedVector<Real> result(static_cast<std::size_t>(round_up(size, kPanel)));
    for (const auto& part : parts) {
      source_.rows(part.name, {part.rows}, [&](std::int32_t, std::span<const float> row) {
        std::copy(row.begin(), row.end(), result.begin() + first);
      });
      first += part.rows;
    }
    return result;
  }

 private:
  Source& source_;
  Arena arena_;
};

/// A layer whose tensors' names begin with `at`; `width`: of the input of its queries, keys and values, which
/// a head has of its own if it is not `normed`.
template <class Real, class Source>
LayerWeights<Real> read_layer(WeightReader<Real, Source>& read, const DecoderConfig& config,
                              const std::string& at, std::int32_t width, bool normed) {
  const std::string attention = at + "self_attn.", mlp = at + "mlp.";
  const std::int32_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim,
                     cross = config.target.heads * config.target.head_dim, hidden = config.hidden_size;
  LayerWeights<Real> layer;
  layer.attention.qkv = read.matrix({{attention + "q_proj.weight", queries},
                                     {attention + "k_proj.weight", keys},
                                     {attention + "v_proj.weight", keys}},
                                    width);
  layer.attention.output = read.matrix({{attention + "o_proj.weight", hidden}}, queries);
  layer.mlp.gate_up = read.matrix({{mlp + "gate_proj.weight", config.intermediate_size},
                                   {mlp + "up_proj.weight", config.intermediate_size}},
                                  hidden);
  layer.mlp.down = read.matrix({{mlp + "down_proj.weight", hidden}}, config.intermediate_size);
  if (normed) layer.attention.norm = read.vectors({{at + "input_layernorm.weight", hidden}});
  if (config.qkv_bias)
    layer.attention.qkv_bias = read.vectors({{attention + "q_proj.bias", queries},
                                             {attention + "k_proj.bias", keys},
                                             {attention + "v_proj.bias", keys}});
  if (config.output_bias) layer.attention.output_bias = read.vectors({{attention + "o_proj.bias", hidden}});
  if (config.query_key_norms) {
    layer.attention.query_norm = read.vectors({{attention + "q_norm.weight", config.head_dim}});
    layer.attention.key_norm = read.vectors({{attention + "k_norm.weight", config.head_dim}});
  }
  layer.mlp.norm = read.vectors({{at + "post_attention_layernorm.weight", hidden}});
  if (config.conditioned_on == Conditioning::key_values) {
    CrossAttentionWeights<Real>& block = layer.cross_attention.emplace();
    block.query = read.matrix({{at + "cross_attn.q_proj.weight", cross}}, hidden);
    block.output = read.matrix({{at + "cross_attn.o_proj.weight", hidden}}, cross);
  }
  return layer;
}

}  // namespace specula::cpu::detail
