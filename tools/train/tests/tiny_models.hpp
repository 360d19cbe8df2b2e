// SPDX-License-Identifier: MIT
// Small random models and rows for the tests of drafters.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "data_loader.hpp"
#include "folder.hpp"
#include "llama.hpp"
#include "optimizer.hpp"
#include "training_loop.hpp"

namespace specula_train_test {

namespace st = specula_train;

constexpr std::int64_t kVocab = 50;

inline st::DecoderConfig tiny_target() {
  return {.vocab_size = kVocab, .hidden = 32, .layers = 3, .heads = 4, .kv_heads = 2, .intermediate = 48};
}

/// A Llama from elsewhere: untied LM head, a head_dim other than hidden / heads, scaled rotary positions. At
/// 500 and 12 some frequencies are unscaled, some scaled, some in between.
inline st::DecoderConfig other_target() {
  auto config = tiny_target();
  config.rope_theta = 500;
  config.rope_scaling = {.type = specula::cpu::RopeType::llama3,
                         .factor = 4,
                         .original_max_position = 12,
                         .low_turns = 1,
                         .high_turns = 3};
  config.head_size = 10;
  config.tied_head = false;
  return config;
}

/// The parts of Qwen2, and of a Qwen3 with biases, whose yarn scaling is between whole pairs.
inline st::DecoderConfig qwen2_target() {
  auto config = tiny_target();
  config.rope_scaling = {.type = specula::cpu::RopeType::linear, .factor = 2.5};
  config.qkv_bias = true;
  return config;
}
inline st::DecoderConfig qwen3_target() {
  auto config = other_target();
  config.rope_scaling = {.type = specula::cpu::RopeType::yarn,
                         .factor = 4,
                         .original_max_position = 12,
                         .low_turns = 0.5,
                         .high_turns = 3,
                         .truncate = false,
                         .attention_factor = 1.1};
  config.qkv_bias = config.output_bias = config.query_key_norms = true;
  return config;
}

/// Sizes that differ from the target's wherever they may.
inline st::DecoderConfig tiny_draft(std::int64_t layers) {
  return {
      .vocab_size = kVocab, .hidden = 36, .layers = layers, .heads = 6, .kv_heads = 2, .intermediate = 40};
}

/// Random weights, so large that every visible token affects the logits.
inline void enlarge(torch::nn::Module& model) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 2) {
      parameter.normal_(0, 1.2 / std::sqrt(static_cast<double>(parameter.size(1))));
    } else {
      parameter.add_(torch::randn_like(parameter) * 0.3);
    }
  }
}

inline torch::Tensor random_rows(std::int64_t rows, std::int64_t length) {
  return torch::randint(0, kVocab, {rows, length}, torch::kInt64);
}

/// Where two (B, T, ...) differ: (T) bool.
inline torch::Tensor changed_rows(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().transpose(0, 1).flatten(1).amax(1) > 1e-5;
}

/// Splits the model.safetensors of a folder into `count` shards with an index, tensor by tensor in turn; the
/// first in F32, the second in F16, the others in BF16.
void shard(const std::filesystem::path& directory, std::size_t count);

/// The gradient of a batch in parts, from several threads, is that of the whole.
void check_parts(const std::function<torch::Tensor(const torch::Tensor&)>& loss, const torch::Tensor& rows,
                 const torch::nn::Module& model);

/// Four steps end with the same weights as two, a checkpoint and two more by another model. `make`: a new
/// model and its loss.
struct Trainee {
  std::shared_ptr<torch::nn::Module> model;
  std::function<torch::Tensor(const torch::Tensor&)> loss;
};
void check_resume(const std::function<Trainee()>& make);

}  // namespace specula_train_test
