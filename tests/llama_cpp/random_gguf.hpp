// SPDX-License-Identifier: MIT
// Small GGUF models with random weights of any type.
#pragma once

#include <ggml.h>
#include <gguf.h>
#include <llama.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <specula/llama_cpp/model.hpp>

#include "../files/safetensors_writer.hpp"
#include "random.hpp"

namespace specula_test {

struct RandomGguf {
  std::string architecture = "llama";  // or cohere2, three layers of four of which have the window
  ggml_type type = GGML_TYPE_F32;      // of matrices
  std::int32_t width = 256, layers = 2, heads = 4, vocab = 320, window = 0;
};

/// Writes and loads it.
inline std::shared_ptr<llama_model> random_model(const RandomGguf& of,
                                                 llama_model_params params = llama_model_default_params()) {
  const TemporaryDirectory folder("random_gguf");
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> file(gguf_init_empty(), &gguf_free);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> tensors(
      ggml_init({.mem_size = 32u << 20, .mem_buffer = nullptr, .no_alloc = false}), &ggml_free);
  const auto key = [&](const std::string& name) { return of.architecture + "." + name; };
  const auto set = [&](const std::string& name, std::int32_t value) {
    gguf_set_val_u32(file.get(), key(name).c_str(), static_cast<std::uint32_t>(value));
  };
  gguf_set_val_str(file.get(), "general.architecture", of.architecture.c_str());
  gguf_set_val_str(file.get(), "tokenizer.ggml.model", "none");
  set("vocab_size", of.vocab), set("context_length", 2048), set("embedding_length", of.width);
  set("block_count", of.layers), set("feed_forward_length", of.width);
  set("attention.head_count", of.heads), set("attention.head_count_kv", of.heads);
  if (of.window > 0) set("attention.sliding_window", of.window);
  for (const char* name : {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"})
    gguf_set_val_f32(file.get(), key(name).c_str(), 1e-5f);
  gguf_set_val_f32(file.get(), key("logit_scale").c_str(), 1);
  Random random(1);
  const auto add = [&](const std::string& name, std::int64_t rows) {  // none: a vector of ones
    ggml_tensor* const tensor = rows > 0 ? ggml_new_tensor_2d(tensors.get(), of.type, of.width, rows)
                                         : ggml_new_tensor_1d(tensors.get(), GGML_TYPE_F32, of.width);
    std::vector<float> numbers(static_cast<std::size_t>(ggml_nelements(tensor)), 1.0f);
    if (rows > 0)
      for (float& number : numbers) number = static_cast<float>(random.between(-4, 4) / std::sqrt(of.width));
    ggml_quantize_chunk(tensor->type, numbers.data(), tensor->data, 0, ggml_nrows(tensor), of.width, nullptr);
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(file.get(), tensor);
  };
  add("token_embd.weight", of.vocab), add("output_norm.weight", 0);
  for (std::int32_t layer = 0; layer < of.layers; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    add(at + "attn_norm.weight", 0);
    if (of.architecture == "llama") add(at + "ffn_norm.weight", 0);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      add(at + name + ".weight", of.width);
  }
  gguf_write_to_file(file.get(), (folder.path / "model.gguf").string().c_str(), false);
  return specula::llama_cpp::load(folder.path / "model.gguf", params);
}

}  // namespace specula_test
