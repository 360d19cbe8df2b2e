// SPDX-License-Identifier: MIT
// Input of a feature head (EAGLE, Li et al. 2024): each token's embedding and the feature of the token
// before.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/model_input.hpp"
#include "specula/cpu/detail/reads_features.hpp"
#include "specula/cpu/detail/slot_memory.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"

namespace specula::cpu::detail {

/// Fuses both, and runs a tree level by level, since a token's feature comes from its parent's pass. Nothing
/// is allocated after the constructor.
template <class Real>
class FeatureInput final : public ReadsFeatures<Real> {
 public:
  FeatureInput(const DecoderWeights<Real>& weights, const DecoderOptions& options)
      : ReadsFeatures<Real>(weights, options, weights.config.hidden_size, weights.config.feature_layers),
        fusion_(weights.feature_input.value()),
        eps_(static_cast<Real>(weights.config.rms_norm_eps)),
        embedding_and_feature_(pass_columns(options), 2 * weights.config.hidden_size) {
    if (const std::int32_t states = fusion_.states.cols()) target_states_ = {pass_columns(options), states};
  }

  void run(const Worker& worker, Batch<Real>& batch) override {
    this->embed(worker, batch, embedding_and_feature_);
    take_features(worker, batch);
    batch.product.multiply(worker.thread, fusion_.fusion, embedding_and_feature_, batch.hidden, 0,
                           batch.count());
    batch.add_bias(worker, fusion_.bias, batch.hidden_size(), batch.hidden);
  }

 private:
  using ReadsFeatures<Real>::has_target_feature;
  using ReadsFeatures<Real>::parent_slot;

  /// Input of a head on several layers for token `i`: their hidden states, each divided by its root mean
  /// square because they grow from layer to layer; then the feature.
  void copy_states(const TargetState<Real>& target, std::int32_t i, Real* to) const {
    for (const std::size_t k : target.states) {
      const auto state = target.features.hidden_state(i, k);
      const Real square = std::inner_product(state.begin(), state.end(), state.begin(), Real(0));
      const Real scale = 1 / std::sqrt(square / static_cast<Real>(state.size()) + eps_);
      to = std::transform(state.begin(), state.end(), to, [scale](Real x) { return x * scale; });
    }
    std::copy_n(target.features.row(i).data(), target.features.width(), to);
  }

  /// Writes the feature of the token before after the embedding.
  void take_features(const Worker& worker, Batch<Real>& batch) {
    const std::int32_t size = batch.hidden_size();
    const auto takes = [&](std::int32_t i, const Segment<Real>& segment) {
      return batch.token(i).position > 0 && has_target_feature(*segment.target, batch.token(i));
    };
    const bool mixes = target_states_.stride > 0;
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      const BatchToken& token = batch.token(i);
      const TargetState<Real>& target = *segment.target;
      if (takes(i, segment) && mixes)
        copy_states(target, token.position - 1, target_states_.at(i));
      else if (token.position > 0)
        std::copy_n(takes(i, segment) ? target.features.row(token.position - 1).data()
                                      : segment.memory->features.at(parent_slot(token)),
                    size, embedding_and_feature_.at(i) + size);
    });
    if (!mixes) return;
    std::int32_t end = 0;  // all threads agree
    for (const Segment<Real>& segment : batch.segments)
      for (std::int32_t i = segment.first; i < segment.last; ++i)
        if (takes(i, segment)) end = i + 1;
    if (end == 0) return;
    batch.product.multiply(worker.thread, fusion_.states, target_states_, batch.normed, 0, end);
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      if (takes(i, segment)) std::copy_n(batch.normed.at(i), size, embedding_and_feature_.at(i) + size);
    });
  }

  const FeatureInputWeights<Real>& fusion_;
  Real eps_;
  Activations<Real> embedding_and_feature_;  // (batch, 2 hidden)
  Activations<Real> target_states_;          // (batch, (n + 1) hidden): n hidden states, then the feature
};

}  // namespace specula::cpu::detail
