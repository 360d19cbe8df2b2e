// SPDX-License-Identifier: MIT
// Names of tensors: in GGUF, as llama.cpp has them (src/llama-arch.cpp), and in Hugging Face folders.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "specula/base/compiler_options.hpp"

namespace specula::files {

namespace detail {

struct TensorNames {
  std::string_view gguf, hugging_face;
};
inline constexpr TensorNames kNamesOfModel[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                                {"output_norm.weight", "model.norm.weight"},
                                                {"output.weight", "lm_head.weight"}};
inline constexpr TensorNames kNamesOfLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

/// The name in the other format; empty: no such tensor.
inline std::string other_name(std::string_view name, std::string_view TensorNames::*from,
                              std::string_view TensorNames::*to, std::string_view from_layers,
                              std::string_view to_layers) {
  for (const TensorNames& names : kNamesOfModel)
    if (name == names.*from) return std::string(names.*to);
  if (!name.starts_with(from_layers)) return {};
  name.remove_prefix(from_layers.size());
  const std::size_t digits = name.find_first_not_of("0123456789"), kind = name.rfind('.');
  if (digits == 0 || digits == name.npos || name[digits] != '.' || kind <= digits) return {};
  if (name.substr(kind) != ".weight" && name.substr(kind) != ".bias") return {};
  for (const TensorNames& names : kNamesOfLayer)
    if (name.substr(digits + 1, kind - digits - 1) == names.*from)
      return std::string(to_layers)
          .append(name.substr(0, digits + 1))
          .append(names.*to)
          .append(name.substr(kind));
  return {};
}

}  // namespace detail

/// The name in a Hugging Face folder of a tensor in GGUF; empty: no Llama, Mistral, Qwen2 or Qwen3 has it.
inline std::string hugging_face_name(std::string_view name) {
  return detail::other_name(name, &detail::TensorNames::gguf, &detail::TensorNames::hugging_face, "blk.",
                            "model.layers.");
}

/// The reverse.
inline std::string gguf_name(std::string_view name) {
  return detail::other_name(name, &detail::TensorNames::hugging_face, &detail::TensorNames::gguf,
                            "model.layers.", "blk.");
}

}  // namespace specula::files
