// SPDX-License-Identifier: MIT
// A small Llama in GGUF whose matrices are random blocks of any types, and the rows that a loader makes of
// it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gguf_model.hpp"
#include "random.hpp"
#include "random_blocks.hpp"
#include "specula/cpu/decoder_weights.hpp"

namespace specula_test {

/// Sizes of a model. Rows must be whole blocks of their types.
struct BlockSizes {
  std::int64_t vocab = 48, hidden = 256, wide = 256, heads = 4, kv_heads = 2, layers = 2;
  bool tied = true;
  std::int64_t head_dim() const { return hidden / heads; }
};
/// Without blocks of 256, and faster.
inline constexpr BlockSizes kNarrow{48, 64, 96, 4, 2, 2, true};
/// Of the blocks of a type.
inline BlockSizes sizes_for(specula::files::GgufId type) { return is_k_type(type) ? BlockSizes{} : kNarrow; }

/// A matrix by its name in a folder, rows in that order.
struct BlockMatrix {
  std::string name;
  specula::files::GgufId type;
  std::int64_t rows, cols;
  std::vector<std::byte> bytes;

  std::size_t stride() const { return bytes.size() / static_cast<std::size_t>(rows); }
  std::vector<float> row(std::int64_t r) const {
    std::vector<float> out(static_cast<std::size_t>(cols));
    specula::files::expand(type, bytes.data() + static_cast<std::size_t>(r) * stride(), out);
    return out;
  }
};

/// The whole model; norms are ones.
struct BlockModel {
  using TypeOf = std::function<specula::files::GgufId(const std::string& name)>;
  BlockSizes sizes;
  std::vector<BlockMatrix> matrices;

  BlockModel(const BlockSizes& s, const TypeOf& type_of, std::uint64_t seed = 1) : sizes(s) {
    Random random(seed);
    const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
      BlockMatrix& out = matrices.emplace_back(BlockMatrix{name + ".weight", type_of(name), rows, cols, {}});
      const double deviation = 1 / std::sqrt(static_cast<double>(cols));
      for (std::int64_t r = 0; r < rows; ++r) {
        std::vector<std::byte> row;
        if (about(out.type).block > 1) {
          row = random_row(out.type, static_cast<std::int32_t>(cols), random, false, deviation);
        } else {
          std::vector<float> values;
          std::string bytes;
          for (std::int64_t k = 0; k < cols; ++k)
            values.push_back(static_cast<float>(1.7 * deviation * random.between(-1, 1)));
          append_rounded(out.type, values, bytes);
          for (const char byte : bytes) row.push_back(static_cast<std::byte>(byte));
        }
        out.bytes.insert(out.bytes.end(), row.begin(), row.end());
      }
    };
    add("model.embed_tokens", sizes.vocab, sizes.hidden);
    if (!sizes.tied) add("lm_head", sizes.vocab, sizes.hidden);
    for (std::int64_t l = 0; l < sizes.layers; ++l) {
      const std::string at = "model.layers." + std::to_string(l) + ".";
      add(at + "self_attn.q_proj", sizes.hidden, sizes.hidden);
      add(at + "self_attn.k_proj", sizes.kv_heads * sizes.head_dim(), sizes.hidden);
      add(at + "self_attn.v_proj", sizes.kv_heads * sizes.head_dim(), sizes.hidden);
      add(at + "self_attn.o_proj", sizes.hidden, sizes.hidden);
      add(at + "mlp.gate_proj", sizes.wide, sizes.hidden);
      add(at + "mlp.up_proj", sizes.wide, sizes.hidden);
      add(at + "mlp.down_proj", sizes.hidden, sizes.wide);
    }
  }
  explicit BlockModel(specula::files::GgufId type, std::uint64_t seed = 1)
      : BlockModel(
            sizes_for(type), [=](const std::string&) { return type; }, seed) {}

  BlockMatrix& find(const std::string& name) {
    for (BlockMatrix& matrix : matrices)
      if (matrix.name == name + ".weight") return matrix;
    return matrices.at(matrices.size());
  }

  /// Queries and keys in the order that llama.cpp has for "llama": (0, half, 1, half + 1, ...).
  GgufContainer file() const {
    GgufContainer out;
    const auto set = [&](const char* key, std::int64_t value) {
      out.set("llama." + std::string(key), static_cast<std::uint32_t>(value));
    };
    out.set("general.architecture", "llama");
    set("context_length", 512), set("embedding_length", sizes.hidden), set("block_count", sizes.layers);
    set("feed_forward_length", sizes.wide), set("attention.head_count", sizes.heads);
    set("attention.head_count_kv", sizes.kv_heads);
    out.set("llama.rope.freq_base", 5000.0f);
    out.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (const BlockMatrix& matrix : matrices) {
      const bool heads =
          matrix.name.find("q_proj") != std::string::npos || matrix.name.find("k_proj") != std::string::npos;
      std::string bytes;
      for (std::int64_t r = 0; r < matrix.rows; ++r) {
        const std::int64_t size = sizes.head_dim(), i = r % size;
        const std::int64_t from = heads ? r - i + i % 2 * (size / 2) + i / 2 : r;
        bytes.append(reinterpret_cast<const char*>(matrix.bytes.data()) +
                         static_cast<std::size_t>(from) * matrix.stride(),
                     matrix.stride());
      }
      out.add(tiny_gguf_name(matrix.name), static_cast<std::uint32_t>(matrix.type),
              {matrix.rows, matrix.cols}, bytes);
    }
    const auto norm = [&](const std::string& name) {
      std::string bytes;
      append_rounded(specula::files::GgufId::f32,
                     std::vector<float>(static_cast<std::size_t>(sizes.hidden), 1.0f), bytes);
      out.add(name + ".weight", 0, {sizes.hidden}, bytes);
    };
    norm("output_norm");
    for (std::int64_t l = 0; l < sizes.layers; ++l)
      for (const char* name : {"attn_norm", "ffn_norm"}) norm("blk." + std::to_string(l) + "." + name);
    return out;
  }

  template <class Real>
  std::shared_ptr<const specula::cpu::DecoderWeights<Real>> weights(
      const specula::cpu::LoadOptions& options = {}) const {
    const TemporaryDirectory folder("block_model");
    write_file(folder.path / "m.gguf", file().bytes());
    return std::make_shared<const specula::cpu::DecoderWeights<Real>>(
        specula::cpu::load_decoder_weights<Real>(folder.path / "m.gguf", {}, options));
  }
};

/// The matrix of a model's weights that has a tensor, and the tensor's first row there.
template <class Real>
struct PlaceOf {
  const specula::cpu::PanelMatrix<Real>& matrix;
  std::int32_t first;
};
template <class Real>
PlaceOf<Real> place_of(const specula::cpu::DecoderWeights<Real>& weights, const std::string& name) {
  const auto& config = weights.config;
  const std::int32_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("embed_tokens")) return {weights.embedding, 0};
  if (has("lm_head")) return {weights.separate_head, 0};
  const auto& layer =
      weights.layers[static_cast<std::size_t>(name[std::string("model.layers.").size()] - '0')];
  if (has("q_proj")) return {layer.attention.qkv, 0};
  if (has("k_proj")) return {layer.attention.qkv, queries};
  if (has("v_proj")) return {layer.attention.qkv, queries + keys};
  if (has("o_proj")) return {layer.attention.output, 0};
  if (has("gate_proj")) return {layer.mlp.gate_up, 0};
  if (has("up_proj")) return {layer.mlp.gate_up, config.intermediate_size};
  return {layer.mlp.down, 0};
}

}  // namespace specula_test
