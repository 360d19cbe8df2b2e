// SPDX-License-Identifier: MIT
// A tiny random model as a Hugging Face folder and as a GGUF file, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../tools/common/gguf_container.hpp"
#include "../../tools/common/gguf_rounding.hpp"
#include "../files/safetensors_writer.hpp"
#include "random.hpp"

namespace specula_test {

using specula_tools::append_rounded;
using specula_tools::GgufContainer;

/// Two layers. All rows are whole blocks of 32, and there are two key heads for four query heads.
struct TinyModel {
  static constexpr std::int64_t kVocab = 40, kHidden = 64, kWide = 96, kHeads = 4, kKvHeads = 2,
                                kHeadDim = 16;

  std::vector<Tensor> tensors;  // by their names in the folder, norms last

  explicit TinyModel(bool tied = false, std::int64_t vocab = kVocab) {
    Random random(7);
    const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
      Tensor tensor{name, "F32", cols ? std::vector{rows, cols} : std::vector{rows}, {}};
      for (std::int64_t i = 0; i < rows * std::max<std::int64_t>(1, cols); ++i)
        tensor.values.push_back(
            static_cast<float>(cols ? random.between(-0.3, 0.3) : random.between(0.5, 1.5)));
      tensors.push_back(std::move(tensor));
    };
    add("model.embed_tokens.weight", vocab, kHidden);
    if (!tied) add("lm_head.weight", vocab, kHidden);
    add("model.norm.weight", kHidden, 0);
    for (const std::string at : {"model.layers.0.", "model.layers.1."}) {
      add(at + "self_attn.q_proj.weight", kHeads * kHeadDim, kHidden);
      add(at + "self_attn.k_proj.weight", kKvHeads * kHeadDim, kHidden);
      add(at + "self_attn.v_proj.weight", kKvHeads * kHeadDim, kHidden);
      add(at + "self_attn.o_proj.weight", kHidden, kHeads * kHeadDim);
      add(at + "mlp.gate_proj.weight", kWide, kHidden);
      add(at + "mlp.up_proj.weight", kWide, kHidden);
      add(at + "mlp.down_proj.weight", kHidden, kWide);
      add(at + "input_layernorm.weight", kHidden, 0);
      add(at + "post_attention_layernorm.weight", kHidden, 0);
    }
  }
};

/// The keys that such a file must have, below `architecture`.
inline void add_keys(GgufContainer& out, const std::string& architecture = "llama") {
  const auto set = [&](const char* key, std::int64_t value) {
    out.set(architecture + "." + key, static_cast<std::uint32_t>(value));
  };
  out.set("general.architecture", architecture);
  set("context_length", 512);
  set("embedding_length", TinyModel::kHidden);
  set("block_count", 2);
  set("feed_forward_length", TinyModel::kWide);
  set("attention.head_count", TinyModel::kHeads);
  set("attention.head_count_kv", TinyModel::kKvHeads);
  out.set(architecture + ".rope.freq_base", 5000.0f);
  out.set(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
}

/// The same for config.json.
inline constexpr const char* kTinyConfig =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 40, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "max_position_embeddings": 512, "tie_word_embeddings": false})";

/// Its name in GGUF, written down once more.
inline std::string tiny_gguf_name(const std::string& name) {
  static const std::vector<std::pair<std::string, std::string>> kParts{
      {"model.embed_tokens", "token_embd"},    {"lm_head", "output"},
      {"model.norm", "output_norm"},           {"model.layers.", "blk."},
      {"self_attn.q_norm", "attn_q_norm"},     {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.q_proj", "attn_q"},          {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},          {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},           {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},           {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"}};
  std::string out = name;
  for (const auto& [from, to] : kParts)
    if (const auto at = out.find(from); at != out.npos && (at == 0 || out[at - 1] == '.'))
      out.replace(at, from.size(), to);
  return out;
}

/// Adds a tensor in blocks of `type`, one that is no matrix as floats. With `adjacent`, rows of queries and
/// keys are in llama.cpp's order: (0, half, 1, half + 1, ...).
inline void add_tensor(GgufContainer& out, const Tensor& tensor, specula::files::GgufId type, bool adjacent) {
  const bool matrix = tensor.shape.size() == 2;
  if (!matrix) type = specula::files::GgufId::f32;
  const auto cols = static_cast<std::size_t>(matrix ? tensor.shape[1] : 1);
  const std::size_t rows = tensor.values.size() / cols;
  const bool reordered = adjacent && (tensor.name.find("q_proj") != std::string::npos ||
                                      tensor.name.find("k_proj") != std::string::npos);
  std::vector<float> values;
  for (std::size_t r = 0; r < rows; ++r) {
    constexpr std::size_t kHalf = TinyModel::kHeadDim / 2;
    const std::size_t from =
        reordered ? r / (2 * kHalf) * 2 * kHalf + r % 2 * kHalf + r % (2 * kHalf) / 2 : r;
    const auto row = std::span(tensor.values).subspan(from * cols, cols);
    values.insert(values.end(), row.begin(), row.end());
  }
  std::string bytes;
  append_rounded(type, values, bytes);
  out.add(tiny_gguf_name(tensor.name), static_cast<std::uint32_t>(type), tensor.shape, bytes);
}

/// The whole file.
inline GgufContainer tiny_gguf(const TinyModel& model,
                               specula::files::GgufId type = specula::files::GgufId::f32,
                               const std::string& architecture = "llama") {
  GgufContainer out;
  add_keys(out, architecture);
  for (const Tensor& tensor : model.tensors) add_tensor(out, tensor, type, architecture == "llama");
  return out;
}

}  // namespace specula_test
