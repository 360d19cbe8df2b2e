// Input of a feature head (EAGLE, Li et al. 2024): each token's embedding and the feature of the token
// before.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/decoder_layer.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/model/features.hpp"

namespace specula::cpu::detail {

/// Empty for a model that is not conditioned on features. Nothing is allocated after the constructor.
template <class Real>
class FeatureInput {
 public:
  FeatureInput(const DecoderWeights<Real>& weights, const DecoderOptions& options)
      : enabled_(weights.config.conditioned_on == Conditioning::features),
        layers_(weights.config.feature_layers),
        states_(layers_.size()),
        eps_(static_cast<Real>(weights.config.rms_norm_eps)) {
    const std::int32_t batch = pass_columns(options), states = weights.feature_fusion.cols();
    if (enabled_) embedding_and_feature_ = {batch, 2 * weights.config.hidden_size};
    if (states > 0) target_states_ = {batch, states};
  }

  bool enabled() const { return enabled_; }

  /// Throws std::invalid_argument if the view lacks the hidden states after a layer that the model reads.
  void set_target_state(const FeaturesView<Real>& view) {
    const auto shown = view.layers();
    for (const std::int32_t layer : layers_)
      if (std::find(shown.begin(), shown.end(), layer) == shown.end())
        throw std::invalid_argument(
            "Decoder::set_target_state: the target does not show the hidden state after layer " +
            std::to_string(layer) + ": make it with this model's config().feature_layers in its options");
    for (std::size_t k = 0; k < layers_.size(); ++k)
      states_[k] =
          static_cast<std::size_t>(std::find(shown.begin(), shown.end(), layers_[k]) - shown.begin());
    features_ = view;
  }
  /// Throws std::logic_error if the model needs a view and none, or a stale one, was given.
  void require_view() const {
    if (enabled_) features_.size();
  }

  /// The end of the tokens from `first` on that may run in one pass: the feature of the token after them
  /// comes from that pass.
  std::int32_t level_end(std::span<const BatchToken> tokens, std::int32_t first) const {
    const auto all = static_cast<std::int32_t>(tokens.size());
    if (!enabled_) return all;
    const std::int32_t slot = tokens[static_cast<std::size_t>(first)].slot;
    std::int32_t last = first + 1;
    for (; last < all; ++last) {
      const BatchToken& token = tokens[static_cast<std::size_t>(last)];
      if (!has_target_feature(token) && parent_slot(token) >= slot) break;
    }
    return last;
  }

  /// Destination of the embeddings: the first half of (batch, 2 hidden).
  Activations<Real>& embedding() { return embedding_and_feature_; }

  /// Fuses embeddings and features, and writes the decoder's hidden; requires the embeddings. `own`: by slot,
  /// the features that this model predicted.
  void run(const Worker& worker, Activations<Real>& own, DecoderLayer<Real>& decoder) {
    const std::int32_t size = decoder.config().hidden_size;
    const DecoderWeights<Real>& weights = *decoder.weights;
    Activations<Real>& hidden = decoder.hidden;
    take_features(worker, own, decoder);
    decoder.product.multiply(worker.thread, weights.fusion, embedding_and_feature_, hidden, 0,
                             decoder.count());
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      for (std::ptrdiff_t k = 0; k < hidden.stride; ++k)
        hidden.at(i)[k] =
            k < size ? hidden.at(i)[k] + weights.fusion_bias[static_cast<std::size_t>(k)] : Real(0);
  }

 private:
  /// Whether the feature of the token before is the target's; otherwise this model predicted it. The first
  /// token has zeros.
  bool has_target_feature(const BatchToken& token) const { return token.position <= features_.size(); }

  /// The slot of the token before.
  static std::int32_t parent_slot(const BatchToken& token) {
    return token.path_size > 1 ? token.path[token.path_size - 2] : token.position - 1;
  }

  /// Input of a head on several layers for token `i`: their hidden states, each divided by its root mean
  /// square because they grow from layer to layer; then the feature.
  void copy_states(std::int32_t i, Real* to) const {
    for (const std::size_t k : states_) {
      const auto state = features_.hidden_state(i, k);
      const Real square = std::inner_product(state.begin(), state.end(), state.begin(), Real(0));
      const Real scale = 1 / std::sqrt(square / static_cast<Real>(state.size()) + eps_);
      to = std::transform(state.begin(), state.end(), to, [scale](Real x) { return x * scale; });
    }
    std::copy_n(features_.row(i).data(), features_.width(), to);
  }

  /// Writes the feature of the token before after the embedding.
  void take_features(const Worker& worker, Activations<Real>& own, DecoderLayer<Real>& decoder) {
    const std::int32_t size = decoder.config().hidden_size;
    const auto takes = [&](std::int32_t i) {
      return decoder.token(i).position > 0 && has_target_feature(decoder.token(i));
    };
    const bool mixes = target_states_.stride > 0;
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      const BatchToken& token = decoder.token(i);
      if (takes(i) && mixes)
        copy_states(token.position - 1, target_states_.at(i));
      else if (token.position > 0)
        std::copy_n(takes(i) ? features_.row(token.position - 1).data() : own.at(parent_slot(token)), size,
                    embedding_and_feature_.at(i) + size);
    }
    if (!mixes) return;
    std::int32_t end = decoder.count();  // all threads agree
    while (end > 0 && !takes(end - 1)) --end;
    if (end == 0) return;
    decoder.product.multiply(worker.thread, decoder.weights->feature_fusion, target_states_, decoder.normed,
                             0, end);
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      if (takes(i)) std::copy_n(decoder.normed.at(i), size, embedding_and_feature_.at(i) + size);
  }

  bool enabled_;
  FeaturesView<Real> features_;
  std::vector<std::int32_t> layers_;  // layers of the target whose hidden states are read
  std::vector<std::size_t> states_;   // their indices in the view
  Real eps_;
  Activations<Real> embedding_and_feature_;  // (batch, 2 hidden)
  Activations<Real> target_states_;          // (batch, (n + 1) hidden): n hidden states, then the feature
};

}  // namespace specula::cpu::detail
