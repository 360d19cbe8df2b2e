// SPDX-License-Identifier: MIT
// Input of an EAGLE-3 head (Li et al. 2025): a token's embedding beside a mix of the target's states at the
// token before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/reads_features.hpp"
#include "specula/cpu/detail/slot_memory.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"

namespace specula::cpu::detail {

/// g of a token is fc of the target's states at the token before, or what this head handed on from there.
/// The residual stream begins as g, or as its norm; queries, keys and values of the first layer read the
/// norms of embedding and g, side by side. Of the first token, whose row nothing reads, g is zero. Nothing is
/// allocated after the constructor.
template <class Real>
class Eagle3Input final : public ReadsFeatures<Real> {
 public:
  Eagle3Input(const DecoderWeights<Real>& weights, const DecoderOptions& options)
      : ReadsFeatures<Real>(weights, options, weights.config.eagle3->target_hidden_size,
                            weights.config.eagle3->states),
        own_(weights.eagle3.value()),
        shape_(*weights.config.eagle3),
        size_(weights.config.hidden_size),
        both_(pass_columns(options), 2 * size_),
        scratch_(options.threads, std::max(size_, shape_.target_hidden_size)) {
    if (shape_.mixes_states()) states_ = {pass_columns(options), own_.fusion.cols()};
  }

  Activations<Real>* attention_input(std::int32_t layer) override { return layer == 0 ? &both_ : nullptr; }

  void run(const Worker& worker, Batch<Real>& batch) override {
    this->embed(worker, batch, both_);
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      batch.norm(both_.at(i), own_.embedding_norm, size_);
    mix_states(worker, batch);
    Real* const g = scratch_.at(worker.thread);
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      Real* const stream = batch.hidden.at(i);
      if (!takes(batch.token(i), segment))
        hand_on(batch.token(i), segment, stream);
      else if (!shape_.mixes_states())
        std::copy_n(segment.target->features.row(batch.token(i).position - 1).data(), size_, stream);
      std::fill(stream + size_, stream + batch.hidden.stride, Real(0));
      std::copy_n(stream, size_, g);
      batch.norm(g, own_.feature_norm, size_);
      std::copy_n(g, size_, both_.at(i) + size_);
      std::fill(both_.at(i) + 2 * size_, both_.at(i) + both_.stride, Real(0));
      if (shape_.norm_before_residual) std::copy_n(g, size_, stream);
    });
  }

 private:
  /// Whether a token takes the target's states at the token before.
  static bool takes(const BatchToken& token, const Segment<Real>& segment) {
    return token.position > 0 && ReadsFeatures<Real>::has_target_feature(*segment.target, token);
  }

  /// What this head made of the token before; zeros for the first.
  void hand_on(const BatchToken& token, const Segment<Real>& segment, Real* to) const {
    if (token.position > 0)
      std::copy_n(segment.memory->features.at(ReadsFeatures<Real>::parent_slot(token)), size_, to);
    else
      std::fill_n(to, size_, Real(0));
  }

  /// Writes g of the tokens that take the target's states to the residual stream. What it writes for others
  /// is replaced.
  void mix_states(const Worker& worker, Batch<Real>& batch) {
    if (!shape_.mixes_states()) return;
    std::int32_t end = 0;  // all threads agree
    for (const Segment<Real>& segment : batch.segments)
      for (std::int32_t i = segment.first; i < segment.last; ++i)
        if (takes(batch.token(i), segment)) end = i + 1;
    if (end == 0) return;
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      if (takes(batch.token(i), segment)) put_states(worker, batch, *segment.target, i);
    });
    batch.product.multiply(worker.thread, own_.fusion, states_, batch.hidden, 0, end);
  }

  /// The states at the token before token `i`, in the order of the head's file, normed as it asks.
  void put_states(const Worker& worker, const Batch<Real>& batch, const TargetState<Real>& target,
                  std::int32_t i) {
    const std::int32_t width = shape_.target_hidden_size;
    Real* const own = scratch_.at(worker.thread);
    Real* to = states_.at(i);
    for (std::size_t k = 0; k < target.states.size(); ++k, to += width) {
      const auto state = target.features.hidden_state(batch.token(i).position - 1, target.states[k]);
      std::copy(state.begin(), state.end(), own);
      if (shape_.fc_norm) batch.norm(own, own_.state_norms[k], width);
      std::copy_n(own, width, to);
    }
    std::fill(to, states_.at(i) + states_.stride, Real(0));
    if (shape_.norm_before_fc) batch.norm(states_.at(i), own_.state_norms[0], own_.fusion.cols());
  }

  const Eagle3Weights<Real>& own_;
  Eagle3Config shape_;
  std::int32_t size_;
  Activations<Real> both_;     // (batch, 2 hidden): embedding, then g, each normed
  Activations<Real> states_;   // (batch, n H): n states of the target
  Activations<Real> scratch_;  // (threads, the larger of hidden and H)
};

}  // namespace specula::cpu::detail
