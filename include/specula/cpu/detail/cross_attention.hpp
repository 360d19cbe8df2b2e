// SPDX-License-Identifier: MIT
// Cross attention of a draft on its target's keys and values (GLIDE, Du et al. 2024).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/attention_heads.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/model_input.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/kv_cache.hpp"

namespace specula::cpu::detail {

/// A batch's view of the targets' texts: a token sees the target's keys before its own position; a draft
/// token sees all of them.
template <class Real>
struct TargetKeys {
  TargetKeys(const TargetShape& shape, const DecoderOptions& options)
      : heads(shape, shape.heads * shape.head_dim, options, round_up(options.capacity, kPanel)),
        tokens(static_cast<std::size_t>(pass_columns(options))),
        positions(static_cast<std::size_t>(options.capacity)) {
    std::iota(positions.begin(), positions.end(), 0);
  }

  void set_batch(const Batch<Real>& batch) {
    active = false;
    for (const Segment<Real>& segment : batch.segments) {
      TargetState<Real>& target = *segment.target;
      const std::int32_t size = target.key_values.size();
      const auto visible = [&](const BatchToken& token) { return std::min(token.position, size); };
      target.base = size;
      target.end = 0;
      for (const BatchToken& token : segment.of(batch.tokens)) {
        target.base = std::min(target.base, visible(token));
        target.end = std::max(target.end, visible(token));
      }
      active = active || target.end > 0;
      for (std::int32_t i = segment.first; i < segment.last; ++i) {
        BatchToken& token = tokens[static_cast<std::size_t>(i)];
        token = batch.token(i);
        token.path = positions.data() + target.base;
        token.path_size = token.in_order = visible(token) - target.base;
      }
    }
  }

  AttentionHeads<Real> heads;           // the target's rotary angles
  std::vector<BatchToken> tokens;       // the batch, as the target's keys see it
  std::vector<std::int32_t> positions;  // 0, 1, 2, ...: their paths
  bool active = false;                  // whether any token of the batch sees a key of its target
};

/// The block of one layer of the draft, which reads one layer of the target.
template <class Real>
class CrossAttention final : public Block<Real> {
 public:
  CrossAttention(const CrossAttentionWeights<Real>& weights, std::int32_t layer, std::int32_t target_layer,
                 TargetKeys<Real>& target)
      : Block<Real>(BlockKind::other, layer),
        weights_(weights),
        target_layer_(target_layer),
        target_(target) {}

  bool active() const override { return target_.active; }

  void run(const Worker& worker, Batch<Real>& batch) override {
    AttentionHeads<Real>& heads = target_.heads;
    batch.product.multiply(worker.thread, weights_.query, batch.hidden, heads.projected, 0, batch.count());
    heads.for_own(worker, batch, [&](const Segment<Real>& segment, std::int32_t head) {
      attend(worker, segment, head, batch);
    });
    batch.product.multiply(worker.thread, weights_.output, heads.mixed, batch.added, 0, batch.count());
  }

 private:
  void attend(const Worker& worker, const Segment<Real>& segment, std::int32_t head,
              const Batch<Real>& batch) {
    AttentionHeads<Real>& heads = target_.heads;
    const TargetState<Real>& target = *segment.target;
    if (target.end > 0)
      heads.attend(worker, batch, segment, target.key_values.cache(), target_layer_, head,
                   segment.of(target_.tokens), target.base, target.end);
    for (std::int32_t i = segment.first; i < segment.last; ++i)
      if (target.end == 0 || batch.token(i).position == 0)  // there is no key before the first token
        std::fill_n(heads.outputs(head, i), heads.shape().group() * heads.shape().head_dim, Real(0));
  }

  const CrossAttentionWeights<Real>& weights_;
  std::int32_t target_layer_;
  TargetKeys<Real>& target_;
};

/// Input of a draft whose layers have cross attention.
template <class Real>
class KeyValuesInput final : public ModelInput<Real> {
 public:
  KeyValuesInput(const DecoderWeights<Real>& weights, const DecoderOptions& options)
      : ModelInput<Real>(weights, options), target_(weights.config.target, options) {}

  void set_target_state(TargetState<Real>& state, const KeyValuesView<Real>& view) override {
    const TargetShape& own = this->weights_.config.target;
    const auto same = [&](const char* what, std::int32_t made_for, std::int32_t given) {
      if (made_for != given)
        this->fail("made for a target with " + std::string(what) + " " + std::to_string(made_for) +
                   ", given one with " + std::to_string(given));
    };
    same("num_hidden_layers", own.layers, view.cache().layers());
    same("num_key_value_heads", own.kv_heads, view.cache().heads());
    same("head_dim", own.head_dim, view.cache().head_dim());
    state.key_values = view;
  }
  using ModelInput<Real>::set_target_state;

  void require_view(const TargetState<Real>& state) const override { state.key_values.cache(); }
  /// The keys and values of the only layer are made before its cross attention.
  bool keeps_speculation() const override { return this->weights_.layers.size() == 1; }

  std::unique_ptr<Block<Real>> make_block(std::int32_t layer) override {
    return std::make_unique<CrossAttention<Real>>(
        this->weights_.layers[static_cast<std::size_t>(layer)].cross_attention.value(), layer,
        this->weights_.config.target_layer(layer), target_);
  }
  void set_batch(const Batch<Real>& batch) override { target_.set_batch(batch); }

 private:
  TargetKeys<Real> target_;
};

}  // namespace specula::cpu::detail
