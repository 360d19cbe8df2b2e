// A Llama-family decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied head.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rotary.hpp"

namespace specula_train {

struct LlamaConfig {
  std::int64_t vocab_size = 2048;
  std::int64_t hidden = 256;
  std::int64_t layers = 8;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 4;
  std::int64_t intermediate = 688;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;

  std::int64_t head_dim() const { return hidden / heads; }

  /// Throws std::invalid_argument for sizes that make no model.
  void validate() const;
};

/// The sizes of the models of the pack: "target", "base" or "small".
LlamaConfig named_config(const std::string& name);

class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(std::int64_t size, double epsilon);
  /// x (..., size) float32 -> (..., size) in `dtype`.
  torch::Tensor forward(const torch::Tensor& x, torch::ScalarType dtype);

 private:
  torch::Tensor weight_;
  double epsilon_;
};
TORCH_MODULE(RmsNorm);

/// One decoder layer. Matrices are float32 parameters; products run in the dtype of the caller's choice.
class DecoderLayerImpl : public torch::nn::Module {
 public:
  explicit DecoderLayerImpl(const LlamaConfig& config);
  /// The residual stream x (B, T, hidden), float32, before and after the layer.
  torch::Tensor forward(const torch::Tensor& x, const RotaryTable& rotary, torch::ScalarType dtype);

 private:
  torch::Tensor attend(const torch::Tensor& x, const RotaryTable& rotary);
  torch::Tensor feed_forward(const torch::Tensor& x);

  LlamaConfig config_;
  RmsNorm input_norm_{nullptr}, post_attention_norm_{nullptr};
  torch::Tensor q_, k_, v_, o_, gate_, up_, down_;  // (out, in)
};
TORCH_MODULE(DecoderLayer);

/// The longest row; also what exported models announce.
constexpr std::int64_t kMaxPositions = 2048;

/// Parameters carry Hugging Face's names (`model.layers.0.self_attn.q_proj.weight`).
class LlamaImpl : public torch::nn::Module {
 public:
  explicit LlamaImpl(const LlamaConfig& config);

  const LlamaConfig& config() const { return config_; }

  /// tokens (B, T) int64 -> the normed hidden states that enter the head, (B, T, hidden), in `dtype`.
  /// Changes nothing in the module, so threads may share it. T is at most kMaxPositions.
  torch::Tensor features(const torch::Tensor& tokens, torch::ScalarType dtype);

  /// features (B, T, hidden) -> logits (B, T, vocab), in the features' dtype.
  torch::Tensor head(const torch::Tensor& features);

 private:
  LlamaConfig config_;
  torch::Tensor embedding_;  // (vocab, hidden), also the head
  std::vector<DecoderLayer> layers_;
  RmsNorm norm_{nullptr};
  torch::Tensor cosine_, sine_;  // a RotaryTable; buffers, so that they follow the model to its device
};
TORCH_MODULE(Llama);

/// Mean cross entropy (nats a token) of predicting rows[:, 1:] from rows[:, :-1]. rows (B, T + 1) int64.
/// Tokens marked as given (mark_given in token_store.hpp) are read like others, but predicting them is no
/// part of the mean.
torch::Tensor next_token_loss(Llama& model, const torch::Tensor& rows, torch::ScalarType dtype);

}  // namespace specula_train
