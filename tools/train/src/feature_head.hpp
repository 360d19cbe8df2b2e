// SPDX-License-Identifier: MIT
// A head that drafts from the target's features: EAGLE (Li et al. 2024), trained as in HASS (Zhang et al.
// 2024).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "distillation.hpp"
#include "llama.hpp"
#include "states_cache.hpp"

namespace specula_train {

/// The sizes of a head for a target: vocabulary, hidden size and norm are the target's, the rest may differ.
/// Embedding and LM head are the target's own, the latter only where a draft vocabulary has a token.
/// `feature_layers`: numbers of the target's layers after which it reads hidden states besides the feature,
/// as in EAGLE-3 (Li et al. 2025). Throws std::invalid_argument unless they ascend from 1 on and stay below
/// the target's.
DecoderConfig head_config(const DecoderConfig& target, std::vector<std::int64_t> feature_layers = {});

/// The parameter that a head has in addition to one that reads features only. Initialised such that both are
/// equal.
constexpr const char* kFeatureFusion = "model.feature_fc.weight";

/// Parameters: `model.fc.{weight,bias}` and those of a Llama's `model.layers.0`, but no input norm; where it
/// reads hidden states, kFeatureFusion.
class FeatureHeadImpl : public torch::nn::Module {
 public:
  /// With config.draft_vocab_size, `draft_tokens` are those tokens, ascending; they become the buffer
  /// `draft_tokens`. Throws std::invalid_argument for others.
  explicit FeatureHeadImpl(const DecoderConfig& config, const std::vector<std::int32_t>& draft_tokens = {});

  const DecoderConfig& config() const { return config_; }

  /// Takes the rows of the target's LM head for the tokens that the head predicts, in the products' type:
  /// once, before a loss. They are no parameters.
  void borrow(const LmHead& of_target, torch::ScalarType dtype);
  /// Throws std::logic_error before borrow().
  const LmHead& lm_head() const;

  /// The predicted features of the target, one result (B, T, hidden) float32 per forward pass: row c
  /// of forward j is step j of the round whose root is at c - (j - 1) (losses/context_alignment.hpp), and has
  /// seen the target's features before that root and the head's own, detached, from there on. embedded (B, T,
  /// hidden): the target's embedding of the tokens. states (B, T, (n + 1) hidden): of the target, as
  /// Llama::states() gives them. T is at least `forwards`. Changes nothing in the module.
  std::vector<torch::Tensor> predict(const torch::Tensor& embedded, const torch::Tensor& states,
                                     std::int64_t forwards, torch::ScalarType dtype);

 private:
  torch::Tensor fuse(const torch::Tensor& embedded, const torch::Tensor& features, torch::ScalarType dtype);

  DecoderConfig config_;
  LmHead head_;  // the weights are borrowed
  torch::Tensor fc_, fc_bias_, feature_fc_;
  SelfAttention attention_{nullptr};
  RmsNorm post_attention_norm_{nullptr};
  FeedForward feed_forward_{nullptr};
  torch::Tensor cosine_, sine_;  // a RotaryTable
};
TORCH_MODULE(FeatureHead);

struct HeadLossOptions {
  std::int64_t forwards = 3;
  specula::TopKDistillation distillation;
  double noise = 0.2;          // of the input features: uniform in +-noise / 2 * 512 / T, times feature_scale
  double distance_weight = 1;  // of the smooth L1 distance of the features divided by feature_scale
  /// The features' root mean square, by which noise and distance mean the same for any target.
  double feature_scale = 1;
  std::int64_t logits_at_once = std::int64_t{1} << 24;  // in memory, by thread
};

/// The root mean square of the target's features of rows (B, T + 1), for HeadLossOptions::feature_scale.
double feature_scale(Llama& target, const torch::Tensor& rows, torch::ScalarType dtype);

/// The sum of the forwards' losses, each a mean over the tokens to be learned of the features' smooth L1
/// distance and the distillation of the target's distribution among the tokens that the head predicts. rows
/// (B, T + 1) int64. The target's states come from `cache`, if there is one. Threads may call it at once.
/// Logits are computed in pieces of rows.
torch::Tensor head_loss(FeatureHead& head, Llama& target, const torch::Tensor& rows,
                        const HeadLossOptions& options, torch::ScalarType dtype,
                        StatesCache* cache = nullptr);

}  // namespace specula_train
