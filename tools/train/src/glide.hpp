// SPDX-License-Identifier: MIT
// GLIDE: a small decoder whose layers also read the keys and values that layers of the target cached
// (Du et al. 2024, "GliDe with a CaPE", section 3).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "llama.hpp"

namespace specula_train {

struct GlideConfig {
  DecoderConfig draft;
  DecoderConfig target;
  std::int64_t block = 5;  // of the training mask: the number of draft steps per round
  /// For each layer of the draft, the layer of the target that it reads, from 0. Empty: the last ones.
  std::vector<std::int64_t> target_layers = {};

  /// The same, spelled out.
  std::vector<std::int64_t> layers_read() const;
  /// Throws std::invalid_argument for invalid sizes, blocks or layers.
  void validate() const;
};

/// Attention of a draft's queries over a target's keys and values. It has no projections for those.
class CrossAttentionImpl : public torch::nn::Module {
 public:
  explicit CrossAttentionImpl(const GlideConfig& config);
  /// x (B, T, hidden); query t sees the first visible[t] keys.
  torch::Tensor forward(const torch::Tensor& x, const KeyValues& target, const torch::Tensor& visible,
                        const RotaryTable& target_rotary);
  /// The output is 0 until it is trained.
  void silence();

 private:
  std::int64_t heads_, kv_heads_, head_dim_;
  torch::Tensor q_, o_;
};
TORCH_MODULE(CrossAttention);

/// x += SelfAttention(norm(x)); x += CrossAttention(x); x += FeedForward(norm(x)).
class GlideLayerImpl : public torch::nn::Module {
 public:
  explicit GlideLayerImpl(const GlideConfig& config);

  AttentionInputs inputs(const torch::Tensor& x, const RotaryTable& rotary, torch::ScalarType dtype);
  /// Adds self-attention's output to x and computes the rest of the layer.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mixed, const KeyValues& target,
                        const torch::Tensor& visible, const RotaryTable& target_rotary,
                        torch::ScalarType dtype);
  CrossAttention& cross() { return cross_; }

 private:
  RmsNorm input_norm_{nullptr}, post_attention_norm_{nullptr};
  SelfAttention attention_{nullptr};
  CrossAttention cross_{nullptr};
  FeedForward feed_forward_{nullptr};
};
TORCH_MODULE(GlideLayer);

/// Parameters carry a Llama's names, and `model.layers.0.cross_attn.{q_proj,o_proj}.weight`.
class GlideImpl : public torch::nn::Module {
 public:
  /// The target's embedding and the draft vocabulary as for a Llama.
  explicit GlideImpl(const GlideConfig& config, const torch::Tensor& target_embedding = {},
                     const std::vector<std::int32_t>& draft_tokens = {});

  const GlideConfig& config() const { return config_; }

  /// tokens (B, T) int64, and the target's keys and values of config().layers_read() -> the normed hidden
  /// states (B, T, hidden), in `dtype`.
  ///
  /// Query t is a step of a round that began with its block: it sees the target's keys before its block
  /// (losses/block_mask.hpp). The tokens before the block are as in a round, computed again when the target
  /// had all tokens before them. Changes nothing in the module.
  torch::Tensor features(const torch::Tensor& tokens, const std::vector<KeyValues>& target,
                         torch::ScalarType dtype);

  /// features (..., hidden) -> logits (..., vocab or draft_vocab_size).
  torch::Tensor head(const torch::Tensor& features);
  const LmHead& lm_head() const { return head_; }

  /// Initialises cross attention to have no effect: until trained, the draft is the plain decoder of its
  /// other weights.
  void silence_cross_attention();

 private:
  GlideConfig config_;
  TokenInput input_;
  LmHead head_;  // of the embedding where they are tied
  std::vector<GlideLayer> layers_;
  RmsNorm norm_{nullptr};
  torch::Tensor cosine_, sine_, target_cosine_, target_sine_;  // RotaryTables
};
TORCH_MODULE(Glide);

/// The number of the target's keys visible to the query at each position, (T) int64.
torch::Tensor visible_keys(std::int64_t length, std::int64_t block, torch::Device device);

/// Which draft step of a round the query at each position is, 1 to block. (T) int64.
torch::Tensor draft_steps(std::int64_t length, std::int64_t block, torch::Device device);

/// next_token_loss of the draft, whose target reads the same rows; given the target's rows_of_target_head(),
/// distillation_loss. Threads may call it at once.
torch::Tensor glide_loss(Glide& draft, Llama& target, const torch::Tensor& rows, torch::ScalarType dtype,
                         const torch::Tensor& target_head = {});

}  // namespace specula_train
