// SPDX-License-Identifier: MIT
#include "feature_head.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <losses/context_alignment.hpp>
#include <stdexcept>
#include <string>

#include "pieces.hpp"

namespace specula_train {
namespace {

using torch::Tensor;

/// Shifts columns by one: column c gets the values of column c - 1, column 0 zeros.
Tensor shifted(const Tensor& features) {
  return torch::constant_pad_nd(features.narrow(1, 0, features.size(1) - 1), {0, 0, 1, 0});
}

/// The same rows get the same noise, so that a training is reproducible with any threads.
Tensor uniform_noise(const Tensor& like, const Tensor& tokens) {
  const auto weights = torch::arange(1, tokens.numel() + 1, tokens.options());
  const auto seed = (tokens.reshape(-1) * weights).sum().item<std::int64_t>();
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  return torch::rand(like.sizes(), generator, torch::kFloat32).sub_(0.5).to(like.device());
}

}  // namespace

DecoderConfig head_config(const DecoderConfig& target, std::vector<std::int64_t> feature_layers) {
  auto config = target;
  config.layers = 1;
  config.qkv_bias = config.output_bias = config.query_key_norms = false;  // its layer is a plain Llama's
  std::int64_t before = 0;
  for (const auto layers : feature_layers) {
    if (layers <= before || layers >= target.layers)
      throw std::invalid_argument("feature layer " + std::to_string(layers) +
                                  ": expected ascending numbers from 1 to " +
                                  std::to_string(target.layers - 1));
    before = layers;
  }
  config.feature_layers = std::move(feature_layers);
  return config;
}

FeatureHeadImpl::FeatureHeadImpl(const DecoderConfig& config, const std::vector<std::int32_t>& draft_tokens)
    : config_(config), head_(add_draft_tokens(*this, config, draft_tokens)) {
  config.validate();
  auto model = register_module("model", std::make_shared<torch::nn::Module>());
  fc_ = add_matrix(*model, "fc", config.hidden, 2 * config.hidden);
  fc_bias_ = model->named_children()["fc"]->register_parameter("bias", torch::zeros({config.hidden}));
  if (const auto states = static_cast<std::int64_t>(config.feature_layers.size()); states > 0) {
    feature_fc_ = add_matrix(*model, "feature_fc", config.hidden, (states + 1) * config.hidden, 0);
    torch::NoGradGuard no_grad;
    feature_fc_.narrow(1, states * config.hidden, config.hidden).copy_(torch::eye(config.hidden));
  }
  auto list = model->register_module("layers", std::make_shared<torch::nn::Module>());
  auto layer = list->register_module("0", std::make_shared<torch::nn::Module>());
  post_attention_norm_ =
      layer->register_module("post_attention_layernorm", RmsNorm(config.hidden, config.norm_epsilon));
  attention_ = layer->register_module("self_attn", SelfAttention(config));
  feed_forward_ = layer->register_module("mlp", FeedForward(config));
  const auto table = make_rotary_table(kMaxPositions, config.attention(), torch::kCPU);
  cosine_ = register_buffer("rotary_cosine", table.cosine);
  sine_ = register_buffer("rotary_sine", table.sine);
}

void FeatureHeadImpl::borrow(const LmHead& of_target, torch::ScalarType dtype) {
  head_.weight = rows_of_target_head(of_target, head_, dtype);
}

const LmHead& FeatureHeadImpl::lm_head() const {
  if (!head_.weight.defined()) throw std::logic_error("FeatureHead: borrow() the target's LM head first");
  return head_;
}

Tensor FeatureHeadImpl::fuse(const Tensor& embedded, const Tensor& features, torch::ScalarType dtype) {
  const auto both = torch::cat({embedded.to(dtype), shifted(features).to(dtype)}, -1);
  return torch::linear(both, fc_.to(dtype), fc_bias_.to(dtype)).to(torch::kFloat32);
}

std::vector<Tensor> FeatureHeadImpl::predict(const Tensor& embedded, const Tensor& states,
                                             std::int64_t forwards, torch::ScalarType dtype) {
  const auto batch = embedded.size(0), length = embedded.size(1);
  if (length < forwards) {
    throw std::invalid_argument("rows of " + std::to_string(length) + " tokens: expected at least " +
                                std::to_string(forwards) + ", one a forward");
  }
  const specula::ContextAlignment alignment{.forwards = static_cast<std::int32_t>(forwards)};
  const auto features =
      feature_fc_.defined() ? torch::linear(states.to(dtype), feature_fc_.to(dtype)) : states;
  std::vector<AttentionInputs> streams;
  std::vector<Tensor> predicted;
  for (std::int32_t forward = 1; forward <= forwards; ++forward) {
    const auto x = fuse(embedded, forward == 1 ? features : predicted.back().detach(), dtype);
    streams.push_back(attention_->inputs(x.to(dtype), {cosine_, sine_}));
    const auto visible = by_position(
        length, embedded.device(), [&](std::int32_t row) { return alignment.target_columns(forward, row); });
    std::vector<LaggedKey> more;
    for (std::int32_t stream = 1; stream < forward; ++stream) {
      const auto column = by_position(length, embedded.device(), [&](std::int32_t row) {
        return alignment.column(forward, stream, row);
      });
      more.push_back({streams[static_cast<std::size_t>(stream)].keys, forward - 1 - stream, column < 0});
    }
    const auto mixed = attend(streams.back().q, streams.front().keys, visible, more);
    const auto attended = x + attention_->output(mixed, batch, length);
    predicted.push_back(attended + feed_forward_->forward(post_attention_norm_->forward(attended, dtype)));
  }
  return predicted;
}

double feature_scale(Llama& target, const Tensor& rows, torch::ScalarType dtype) {
  const auto tokens = unmark(rows).narrow(1, 0, rows.size(1) - 1);
  return target->states(tokens, {}, dtype).features.to(torch::kFloat32).square().mean().sqrt().item<double>();
}

Tensor head_loss(FeatureHead& head, Llama& target, const Tensor& rows, const HeadLossOptions& options,
                 torch::ScalarType dtype, StatesCache* cache) {
  const auto length = rows.size(1) - 1, forwards = options.forwards;
  const auto tokens = unmark(rows).narrow(1, 0, length);
  const auto states = cache ? cache->states(target, tokens, dtype)
                            : target->states(tokens, head->config().feature_layers, dtype);
  const auto embedded = torch::embedding(target->embedding(), tokens);
  auto input = states.all.to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true);
  if (options.noise > 0) {  // of the feature alone: hidden states have scales of their own
    const auto size = states.features.size(-1);
    input.narrow(-1, input.size(-1) - size, size)
        .add_(uniform_noise(states.features, tokens),
              options.noise * options.feature_scale * 512 / static_cast<double>(length));
  }
  const auto all = head->predict(embedded, input, forwards, dtype);

  const auto learned = learned_predictions(rows);
  if (learned.places.numel() == 0) return all.front().sum() * 0;
  const auto pick = [&](const Tensor& x) { return x.view({-1, x.size(-1)}).index_select(0, learned.places); };
  const auto wanted = pick(states.features);
  const auto position = torch::where(learned.expected >= 0, learned.places.remainder(length), -1);
  const specula::ContextAlignment alignment{.forwards = static_cast<std::int32_t>(forwards)};
  std::vector<Tensor> picked, counted;
  for (std::int32_t forward = 1; forward <= forwards; ++forward) {
    picked.push_back(pick(all[static_cast<std::size_t>(forward) - 1]));
    const auto counts = (position >= alignment.first_row(forward)).to(torch::kFloat32);
    counted.push_back(counts / (counts.sum() + 1e-5));
  }
  const auto predicted = torch::stack(picked, 1);  // (n, forwards, hidden)
  const auto weights = torch::stack(counted, 1);   // (n, forwards): of each in the mean of its forward
  const auto lm_head = head->lm_head().weight.to(dtype);
  auto loss = sum_in_pieces(
      predicted, lm_head, lm_head.size(0) * forwards,
      [&](const Tensor& piece, const Tensor& weight, std::int64_t first) {
        const auto wanted_logits = torch::linear(wanted.narrow(0, first, piece.size(0)), weight).detach();
        std::vector<Tensor> of_rows;
        for (std::int64_t forward = 0; forward < forwards; ++forward)
          of_rows.push_back(distillation(torch::linear(piece.select(1, forward).to(dtype), weight),
                                         wanted_logits, options.distillation));
        return (torch::stack(of_rows, 1) * weights.narrow(0, first, piece.size(0))).sum();
      },
      options.logits_at_once);
  if (options.distance_weight != 0) {
    const auto scaled =
        (wanted.to(torch::kFloat32) / options.feature_scale).unsqueeze(1).expand_as(predicted);
    const auto distance =
        torch::smooth_l1_loss(predicted / options.feature_scale, scaled, at::Reduction::None);
    loss = loss + options.distance_weight * (distance.mean(-1) * weights).sum();
  }
  return loss;
}

}  // namespace specula_train
