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

/// A batch's view of the target: a token sees the target's keys before its own position; a draft token sees
/// all of them.
template <class Real>
struct TargetKeys {
  TargetKeys(const TargetShape& shape, const DecoderOptions& options)
      : heads(shape, shape.heads * shape.head_dim, options, round_up(options.capacity, kPanel)),
        tokens(static_cast<std::size_t>(pass_columns(options))),
        positions(static_cast<std::size_t>(options.capacity)) {
    std::iota(positions.begin(), positions.end(), 0);
  }

  void set_batch(std::span<const BatchToken> batch) {
    const std::int32_t size = view.size();
    const auto visible = [&](const BatchToken& token) { return std::min(token.position, size); };
    base = size;
    end = 0;
    for (const BatchToken& token : batch) {
      base = std::min(base, visible(token));
      end = std::max(end, visible(token));
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      tokens[i] = batch[i];
      tokens[i].path = positions.data() + base;
      tokens[i].path_size = tokens[i].in_order = visible(tokens[i]) - base;
    }
  }

  KeyValuesView<Real> view;
  AttentionHeads<Real> heads;           // the target's rotary angles
  std::vector<BatchToken> tokens;       // the batch, as the target's keys see it
  std::vector<std::int32_t> positions;  // 0, 1, 2, ...: their paths
  std::int32_t base = 0, end = 0;       // keys that every token sees, and that any does
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

  /// Whether any token of the batch sees a key of the target.
  bool active() const override { return target_.end > 0; }

  void run(const Worker& worker, Batch<Real>& batch) override {
    AttentionHeads<Real>& heads = target_.heads;
    batch.product.multiply(worker.thread, weights_.query, batch.hidden, heads.projected, 0, batch.count());
    const auto [first, last] = batch.product.share(worker.thread, heads.shape().kv_heads);
    for (std::int32_t head = first; head < last; ++head) attend(worker, head, batch);
    batch.product.multiply(worker.thread, weights_.output, heads.mixed, batch.added, 0, batch.count());
  }

 private:
  void attend(const Worker& worker, std::int32_t head, const Batch<Real>& batch) {
    AttentionHeads<Real>& heads = target_.heads;
    heads.attend(worker, batch, target_.view.cache(), target_layer_, head,
                 std::span(target_.tokens).first(batch.tokens.size()), target_.base, target_.end);
    for (std::int32_t i = 0; i < batch.count(); ++i)
      if (batch.token(i).position == 0)  // there is no key before the first token
        std::fill_n(heads.outputs(head) + i * heads.mixed.stride,
                    heads.shape().group() * heads.shape().head_dim, Real(0));
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

  void set_target_state(const KeyValuesView<Real>& view) override {
    const TargetShape& own = this->weights_.config.target;
    const auto same = [&](const char* what, std::int32_t made_for, std::int32_t given) {
      if (made_for != given)
        this->fail("made for a target with " + std::string(what) + " " + std::to_string(made_for) +
                   ", given one with " + std::to_string(given));
    };
    same("num_hidden_layers", own.layers, view.cache().layers());
    same("num_key_value_heads", own.kv_heads, view.cache().heads());
    same("head_dim", own.head_dim, view.cache().head_dim());
    target_.view = view;
  }
  using ModelInput<Real>::set_target_state;

  void require_view() const override { target_.view.cache(); }
  /// The keys and values of the only layer are made before its cross attention.
  bool keeps_speculation() const override { return this->weights_.layers.size() == 1; }

  std::unique_ptr<Block<Real>> make_block(std::int32_t layer) override {
    return std::make_unique<CrossAttention<Real>>(
        this->weights_.layers[static_cast<std::size_t>(layer)].cross_attention.value(), layer,
        this->weights_.config.target_layer(layer), target_);
  }
  void set_batch(std::span<const BatchToken> tokens) override { target_.set_batch(tokens); }

 private:
  TargetKeys<Real> target_;
};

}  // namespace specula::cpu::detail
