// SPDX-License-Identifier: MIT
#include "glide.hpp"

#include <algorithm>
#include <losses/block_mask.hpp>
#include <numeric>
#include <stdexcept>
#include <string>

namespace specula_train {

using torch::Tensor;

namespace {

specula::BlockMask mask(std::int64_t block) { return {.block = static_cast<std::int32_t>(block)}; }

}  // namespace

Tensor visible_keys(std::int64_t length, std::int64_t block, torch::Device device) {
  return by_position(length, device, [m = mask(block)](std::int32_t t) { return m.visible(t); });
}

Tensor draft_steps(std::int64_t length, std::int64_t block, torch::Device device) {
  return by_position(length, device, [m = mask(block)](std::int32_t t) { return m.step(t); });
}

void GlideConfig::validate() const {
  draft.validate();
  target.validate();
  if (target_layers.empty() && draft.layers > target.layers) {
    throw std::invalid_argument("a draft of " + std::to_string(draft.layers) + " layers: the target has " +
                                std::to_string(target.layers));
  }
  if (!target_layers.empty() && static_cast<std::int64_t>(target_layers.size()) != draft.layers) {
    throw std::invalid_argument("--target-layer names " + std::to_string(target_layers.size()) +
                                " layers, expected one for each of the draft's " +
                                std::to_string(draft.layers));
  }
  for (const auto layer : target_layers) {
    if (layer < 0 || layer >= target.layers) {
      throw std::invalid_argument("--target-layer " + std::to_string(layer) + ": expected 0 to " +
                                  std::to_string(target.layers - 1));
    }
  }
  if (draft.target_hidden_size != 0 && draft.target_hidden_size != target.hidden) {
    throw std::invalid_argument("a draft over an embedding " + std::to_string(draft.target_hidden_size) +
                                " wide: the target's is " + std::to_string(target.hidden));
  }
  mask(block).validate();
}

std::vector<std::int64_t> GlideConfig::layers_read() const {
  if (!target_layers.empty()) return target_layers;
  std::vector<std::int64_t> last(static_cast<std::size_t>(draft.layers));
  std::iota(last.begin(), last.end(), target.layers - draft.layers);
  return last;
}

CrossAttentionImpl::CrossAttentionImpl(const GlideConfig& config)
    : heads_(config.target.heads), kv_heads_(config.target.kv_heads), head_dim_(config.target.head_dim()) {
  const auto width = heads_ * head_dim_;
  q_ = add_matrix(*this, "q_proj", width, config.draft.hidden);
  o_ = add_matrix(*this, "o_proj", config.draft.hidden, width, added_deviation(config.draft));
}

Tensor CrossAttentionImpl::forward(const Tensor& x, const KeyValues& target, const Tensor& visible,
                                   const RotaryTable& target_rotary) {
  const auto batch = x.size(0), length = x.size(1);
  const auto q = torch::linear(x, q_.to(x.scalar_type())).view({batch, length, heads_, head_dim_});
  const auto rotated = rotate_queries(q, target_rotary).view({batch * kv_heads_, -1, head_dim_});
  return torch::linear(join_heads(attend(rotated, target, visible), batch, length), o_.to(x.scalar_type()));
}

void CrossAttentionImpl::silence() {
  torch::NoGradGuard no_grad;
  o_.zero_();
}

GlideLayerImpl::GlideLayerImpl(const GlideConfig& config)
    : input_norm_(
          register_module("input_layernorm", RmsNorm(config.draft.hidden, config.draft.norm_epsilon))),
      post_attention_norm_(register_module("post_attention_layernorm",
                                           RmsNorm(config.draft.hidden, config.draft.norm_epsilon))),
      attention_(register_module("self_attn", SelfAttention(config.draft))),
      cross_(register_module("cross_attn", CrossAttention(config))),
      feed_forward_(register_module("mlp", FeedForward(config.draft))) {}

AttentionInputs GlideLayerImpl::inputs(const Tensor& x, const RotaryTable& rotary, torch::ScalarType dtype) {
  return attention_->inputs(input_norm_->forward(x, dtype), rotary);
}

Tensor GlideLayerImpl::forward(const Tensor& x, const Tensor& mixed, const KeyValues& target,
                               const Tensor& visible, const RotaryTable& target_rotary,
                               torch::ScalarType dtype) {
  const auto attended = x + attention_->output(mixed, x.size(0), x.size(1));
  const auto crossed = attended + cross_->forward(attended.to(dtype), target, visible, target_rotary);
  return crossed + feed_forward_->forward(post_attention_norm_->forward(crossed, dtype));
}

GlideImpl::GlideImpl(const GlideConfig& config, const Tensor& target_embedding,
                     const std::vector<std::int32_t>& draft_tokens)
    : config_(config) {
  config.validate();
  auto model = register_module("model", std::make_shared<torch::nn::Module>());
  input_ = add_token_input(*model, config.draft, target_embedding);
  auto list = model->register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < config.draft.layers; ++i) {
    layers_.push_back(list->register_module(std::to_string(i), GlideLayer(config)));
  }
  norm_ = model->register_module("norm", RmsNorm(config.draft.hidden, config.draft.norm_epsilon));
  head_ = add_head(*this, config.draft, input_.embedding, draft_tokens);
  const auto own = make_rotary_table(kMaxPositions, config.draft.attention(), torch::kCPU);
  const auto target = make_rotary_table(kMaxPositions, config.target.attention(), torch::kCPU);
  cosine_ = register_buffer("rotary_cosine", own.cosine);
  sine_ = register_buffer("rotary_sine", own.sine);
  target_cosine_ = register_buffer("target_rotary_cosine", target.cosine);
  target_sine_ = register_buffer("target_rotary_sine", target.sine);
}

void GlideImpl::silence_cross_attention() {
  for (auto& layer : layers_) layer->cross()->silence();
}

Tensor GlideImpl::features(const Tensor& tokens, const std::vector<KeyValues>& target,
                           torch::ScalarType dtype) {
  const auto length = tokens.size(1);
  const auto device = tokens.device();
  const RotaryTable rotary{cosine_, sine_}, target_rotary{target_cosine_, target_sine_};
  const auto seen = causal(length, device), at = seen - 1;
  const auto visible = visible_keys(length, config_.block, device);

  // Two streams. `fresh`: tokens as context, which see all of the target before them. `drafted`: tokens as
  // steps of a round, which read the fresh stream before their block and their own within it. They differ
  // from the first cross attention on, so one layer's keys and values are the same in both.
  auto drafted = input_(tokens, dtype), fresh = drafted;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    auto& layer = layers_[i];
    const auto queries = layer->inputs(drafted, rotary, dtype);
    const auto context = i == 0 ? queries : layer->inputs(fresh, rotary, dtype);
    Tensor mixed;
    if (i == 0) {
      mixed = attend(queries.q, queries.keys, seen);
    } else {
      std::vector<LaggedKey> own;
      for (std::int64_t lag = 0; lag < std::min(config_.block, length); ++lag) {
        own.push_back({queries.keys, lag, at - lag < visible});
      }
      mixed = attend(queries.q, context.keys, visible, own);
    }
    drafted = layer->forward(drafted, mixed, target[i], visible, target_rotary, dtype);
    if (i + 1 < layers_.size()) {
      const auto mixed_fresh = i == 0 ? mixed : attend(context.q, context.keys, seen);
      fresh = layer->forward(fresh, mixed_fresh, target[i], at, target_rotary, dtype);
    }
  }
  return norm_->forward(drafted, dtype);
}

Tensor GlideImpl::head(const Tensor& features) {
  return torch::linear(features, head_.weight.to(features.scalar_type()));
}

Tensor glide_loss(Glide& draft, Llama& target, const Tensor& rows, torch::ScalarType dtype,
                  const Tensor& target_head) {
  const auto tokens = unmark(rows).narrow(1, 0, rows.size(1) - 1);
  const auto view = target->target_view(tokens, draft->config().layers_read(), target_head.defined(), dtype);
  const auto features = draft->features(tokens, view.layers, dtype);
  return target_head.defined() ? distillation_loss({features}, draft->lm_head(), view.features, target_head)
                               : next_token_loss(features, rows, draft->lm_head());
}

}  // namespace specula_train
