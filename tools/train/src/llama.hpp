// SPDX-License-Identifier: MIT
// A Llama-family decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied or separate LM
// head; biases as in Qwen2, norms of queries and keys as in Qwen3.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <specula/cpu/decoder_config.hpp>
#include <string>
#include <vector>

#include "attention.hpp"
#include "rotary.hpp"
#include "text_cache.hpp"

namespace specula_train {

/// The longest row; also the default of max_position_embeddings in config.json.
constexpr std::int64_t kMaxPositions = 2048;

struct DecoderConfig {
  std::int64_t vocab_size = 2048;
  std::int64_t hidden = 256;
  std::int64_t layers = 8;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 4;
  std::int64_t intermediate = 688;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  specula::cpu::RopeScaling rope_scaling = {};
  std::int64_t head_size = 0;         // 0: hidden / heads
  bool tied_head = true;              // the LM head is the embedding
  std::int64_t draft_vocab_size = 0;  // 0: all
  /// Of a draft over its target's embedding: the target's hidden size. 0: the embedding is its own.
  std::int64_t target_hidden_size = 0;
  bool qkv_bias = false, output_bias = false, query_key_norms = false;  // as in specula::cpu::DecoderConfig
  std::int64_t max_positions = kMaxPositions;
  std::int64_t begin = 1, end = 2;  // the ids of <s> and </s>, for config.json
  /// What ends texts, as the folder of the model or of its target says; empty: `end`.
  std::vector<std::int32_t> ends = {};
  /// Exits: ascending numbers of layers, the last is `layers`; the model learns to predict at each (sorted
  /// fine-tuning, Valipour et al. 2023). Empty: only at the last.
  std::vector<std::int64_t> exits = {};
  /// For a head: ascending numbers of its target's layers after which it reads a hidden state, too.
  std::vector<std::int64_t> feature_layers = {};

  std::int64_t head_dim() const { return head_size != 0 ? head_size : hidden / heads; }
  /// The parameters of the rotary angles, and the shape of keys and values.
  specula::cpu::AttentionShape attention() const;

  /// Throws std::invalid_argument for invalid sizes.
  void validate() const;
};

/// The sizes of the models of the pack: "target", "base" or "small".
DecoderConfig named_config(const std::string& name);

/// From the config.json of a Hugging Face directory, by the reader of specula::cpu::Decoder. Throws
/// std::runtime_error naming file and key for a model that this reader refuses, or that reads of a target
/// what is not `allowed`.
DecoderConfig read_config(const std::filesystem::path& directory,
                          std::initializer_list<specula::Conditioning> allowed = {
                              specula::Conditioning::nothing});

/// The config as specula::cpu::Decoder reads it, for every kind of conditioning.
specula::cpu::DecoderConfig read_inference_config(const std::filesystem::path& directory);

/// A matrix (out, in) as the parameter `name`.weight of a module, from N(0, deviation^2).
torch::Tensor add_matrix(torch::nn::Module& module, const std::string& name, std::int64_t out,
                         std::int64_t in, double deviation = 0.02);

/// A bias (size), zeros, as the parameter `name`.bias of a module that has the matrix `name`; undefined
/// unless `has`.
torch::Tensor add_bias(torch::nn::Module& module, const std::string& name, std::int64_t size, bool has);

/// What tokens are before the first layer: rows of an embedding, a draft's also times a projection.
struct TokenInput {
  torch::Tensor embedding;   // (vocab, hidden), or its target's (vocab, target_hidden_size)
  torch::Tensor projection;  // (hidden, target_hidden_size) of the latter; else undefined
  /// tokens (...) int64 -> (..., hidden) float32; the product runs in `dtype`.
  torch::Tensor operator()(const torch::Tensor& tokens, torch::ScalarType dtype) const;
};

/// The parameter `embed_tokens.weight` of a module; or, with config.target_hidden_size,
/// `embed_projection.weight` beside the target's embedding, which is no parameter. Throws
/// std::invalid_argument unless `target_embedding` (vocab, target_hidden_size) is given exactly then.
TokenInput add_token_input(torch::nn::Module& module, const DecoderConfig& config,
                           const torch::Tensor& target_embedding);

/// What a decoder predicts with.
struct LmHead {
  torch::Tensor weight;   // (vocab, hidden); with a draft vocabulary, (draft_vocab_size, hidden)
  torch::Tensor tokens;   // (draft_vocab_size) int32, the token of each row; undefined: all
  torch::Tensor columns;  // (vocab) int64, the row of each token, or -1; undefined likewise
};

/// An LM head without a weight; the tokens of a draft vocabulary, if any, become the buffer `draft_tokens` of
/// the module. Throws std::invalid_argument unless they are draft_vocab_size ascending ones.
LmHead add_draft_tokens(torch::nn::Module& module, const DecoderConfig& config,
                        const std::vector<std::int32_t>& draft_tokens);

/// The same with the module's embedding as its weight, or with a parameter `lm_head.weight`.
LmHead add_head(torch::nn::Module& module, const DecoderConfig& config, const torch::Tensor& embedding,
                const std::vector<std::int32_t>& draft_tokens);

/// The initial standard deviation of matrices that add to the residual stream: smaller for more layers
/// (GPT-2).
double added_deviation(const DecoderConfig& config);

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

/// The queries, keys, values and output of attention over a decoder's own tokens. Matrices are float32
/// parameters; products run in the dtype of the input.
class SelfAttentionImpl : public torch::nn::Module {
 public:
  explicit SelfAttentionImpl(const DecoderConfig& config);
  /// x (B, T, hidden) -> rotated queries and keys, and values.
  AttentionInputs inputs(const torch::Tensor& x, const RotaryTable& rotary);
  /// The output of attend() -> (B, T, hidden).
  torch::Tensor output(const torch::Tensor& mixed, std::int64_t batch, std::int64_t length);
  void freeze(torch::ScalarType dtype);

 private:
  DecoderConfig config_;
  torch::Tensor q_, k_, v_, o_;                      // (out, in)
  torch::Tensor frozen_qkv_;                         // of freeze(), or undefined
  torch::Tensor q_bias_, k_bias_, v_bias_, o_bias_;  // (out), or undefined
  RmsNorm q_norm_{nullptr}, k_norm_{nullptr};        // of each head, or null
};
TORCH_MODULE(SelfAttention);

/// SwiGLU.
class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const DecoderConfig& config);
  torch::Tensor forward(const torch::Tensor& x);
  void freeze(torch::ScalarType dtype);

 private:
  torch::Tensor gate_, up_, down_;  // (out, in)
  torch::Tensor frozen_gate_up_;    // of freeze(), or undefined
};
TORCH_MODULE(FeedForward);

class DecoderLayerImpl : public torch::nn::Module {
 public:
  explicit DecoderLayerImpl(const DecoderConfig& config);
  /// The residual stream x (B, T, hidden), float32, before and after the layer.
  torch::Tensor forward(const torch::Tensor& x, const RotaryTable& rotary, torch::ScalarType dtype);

  /// The same in two parts, for callers that need the values in between. Every token sees itself and all
  /// before it.
  AttentionInputs inputs(const torch::Tensor& x, const RotaryTable& rotary, torch::ScalarType dtype);
  torch::Tensor forward(const torch::Tensor& x, const AttentionInputs& inputs, torch::ScalarType dtype);
  /// The same from what attend() or attend_texts() gave.
  torch::Tensor add_mixed(const torch::Tensor& x, const torch::Tensor& mixed, torch::ScalarType dtype);
  void freeze(torch::ScalarType dtype);

 private:
  RmsNorm input_norm_{nullptr}, post_attention_norm_{nullptr};
  SelfAttention attention_{nullptr};
  FeedForward feed_forward_{nullptr};
};
TORCH_MODULE(DecoderLayer);

/// The target's states that a head reads.
struct TargetStates {
  torch::Tensor all;       // (B, T, (n + 1) hidden): hidden states after n layers, then the features
  torch::Tensor features;  // (B, T, hidden): the normed hidden states that enter the head
};

/// The target's states that a drafter reads.
struct TargetView {
  torch::Tensor features;         // (B, T, hidden): the normed hidden states that enter the head, or none
  std::vector<KeyValues> layers;  // of the layers that were asked for, in that order
};

/// Parameters carry Hugging Face's names (`model.layers.0.self_attn.q_proj.weight`, `lm_head.weight`).
class LlamaImpl : public torch::nn::Module {
 public:
  /// A draft over its target's embedding is given that, (vocab, target_hidden_size), and one with a draft
  /// vocabulary its tokens, ascending.
  explicit LlamaImpl(const DecoderConfig& config, const torch::Tensor& target_embedding = {},
                     const std::vector<std::int32_t>& draft_tokens = {});

  const DecoderConfig& config() const { return config_; }

  /// tokens (B, T) int64 -> the normed hidden states that enter the head, (B, T, hidden), in `dtype`.
  /// Changes nothing in the module, so threads may share it. T is at most kMaxPositions.
  torch::Tensor features(const torch::Tensor& tokens, torch::ScalarType dtype);

  /// Initialises the layers from `first` on, from 0, to have no effect: they add zero until trained.
  void silence(std::int64_t first);

  /// The same after each exit; norm and head are one for all.
  std::vector<torch::Tensor> exit_features(const torch::Tensor& tokens, torch::ScalarType dtype);

  /// Without gradients: the hidden states after these numbers of layers, ascending, each divided by its root
  /// mean square, then the features.
  TargetStates states(const torch::Tensor& tokens, const std::vector<std::int64_t>& layers,
                      torch::ScalarType dtype);

  /// Without gradients: the keys and values of these layers (from 0), and the features, or nothing that only
  /// they take.
  TargetView target_view(const torch::Tensor& tokens, const std::vector<std::int64_t>& layers, bool features,
                         torch::ScalarType dtype);

  /// Keys and values of so many texts, of up to `capacity` tokens (at most kMaxPositions), on the model's
  /// device: texts * capacity * 2 * layers * kv_heads * head_dim numbers of this dtype.
  TextCache text_cache(std::int64_t texts, std::int64_t capacity, torch::ScalarType dtype) const;

  /// Without gradients: puts these tokens (n) into a place of the cache, instead of what was there. Throws
  /// std::invalid_argument if they do not fit.
  void begin_text(const torch::Tensor& tokens, std::int64_t place, TextCache& cache, torch::ScalarType dtype);

  /// Without gradients: adds one token to each text, tokens (texts) int64 -> the features that predict the
  /// next one, (texts, hidden). Throws std::invalid_argument if a text is as long as the cache.
  torch::Tensor go_on(const torch::Tensor& tokens, TextCache& cache, torch::ScalarType dtype);

  /// For a model that is not trained: keeps its matrices in `dtype`, as the products take them, instead of
  /// converting them in every pass. Its parameters are of that type from now on.
  void freeze(torch::ScalarType dtype);

  /// features (B, T, hidden) -> logits (B, T, vocab or draft_vocab_size), in the features' dtype.
  torch::Tensor head(const torch::Tensor& features);

  /// (vocab, hidden).
  const torch::Tensor& embedding() const { return input_.embedding; }
  const LmHead& lm_head() const { return head_; }

 private:
  DecoderConfig config_;
  TokenInput input_;
  LmHead head_;  // of the same tensor where they are tied
  std::vector<DecoderLayer> layers_;
  RmsNorm norm_{nullptr};
  torch::Tensor cosine_, sine_;  // a RotaryTable; buffers, so that they follow the model to its device
};
TORCH_MODULE(Llama);

/// Marked tokens (mark_given in token_store.hpp) as they are.
torch::Tensor unmark(const torch::Tensor& rows);

/// The predictions of a batch that are learned: all but those of given tokens.
struct LearnedPredictions {
  torch::Tensor places;    // (n) int64, in (B * T); n = 0: none
  torch::Tensor expected;  // (n) int64, the tokens there; -1: padding of n
  std::int64_t count = 0;  // without the padding
};
/// rows (B, T + 1). n is rounded up, so that few sizes occur and libraries reuse what they cache per size
/// (generated code, blocks of memory). With `columns` (LmHead), only tokens of the draft vocabulary count,
/// and `expected` are their rows of the LM head.
LearnedPredictions learned_predictions(const torch::Tensor& rows, const torch::Tensor& columns = {});

/// Mean cross entropy (nats a token) of predicting rows[:, 1:] from features (B, T, hidden) of rows[:, :-1];
/// rows (B, T + 1) int64. Tokens marked as given are inputs like others, but their prediction is not part of
/// the mean; nor is that of tokens outside the draft vocabulary.
torch::Tensor next_token_loss(const torch::Tensor& features, const torch::Tensor& rows, const LmHead& head);

/// The same, of a decoder at each of its exits.
std::vector<torch::Tensor> exit_losses(Llama& model, const torch::Tensor& rows, torch::ScalarType dtype);

/// Their mean.
torch::Tensor next_token_loss(Llama& model, const torch::Tensor& rows, torch::ScalarType dtype);

/// The mean, over all rows and all of `features`, of the cross entropy (nats a token) with the target's
/// distribution among the tokens that `head` predicts. features: (B, T, hidden) of each exit; of_target (B,
/// T, target's hidden); target_head: rows_of_target_head(), in the dtype of of_target.
torch::Tensor distillation_loss(const std::vector<torch::Tensor>& features, const LmHead& head,
                                const torch::Tensor& of_target, const torch::Tensor& target_head);

/// The rows of a target's LM head for the tokens that a draft's head predicts.
torch::Tensor rows_of_target_head(const LmHead& target, const LmHead& draft, torch::ScalarType dtype);

/// The likeliest token of each of features (..., hidden): (...) int64.
torch::Tensor likeliest_tokens(const torch::Tensor& features, const LmHead& head);

}  // namespace specula_train
