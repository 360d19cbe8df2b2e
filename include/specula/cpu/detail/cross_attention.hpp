// Cross attention of a draft on its target's keys and values (GLIDE, Du et al. 2024).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/decoder_layer.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rope_table.hpp"
#include "specula/cpu/detail/rotated_queries.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/cpu/kv_cache.hpp"

namespace specula::cpu::detail {

/// A token sees the target's keys before its own position; a draft token sees all of them. Empty for a model
/// that is not conditioned on keys and values. Nothing is allocated after the constructor.
template <class Real>
class CrossAttention {
 public:
  CrossAttention(const DecoderConfig& config, const DecoderOptions& options, std::int32_t slots)
      : enabled_(config.conditioned_on == Conditioning::key_values) {
    if (!enabled_) return;
    const TargetShape& target = config.target;
    const std::int32_t batch = pass_columns(options), width = target.heads * target.head_dim;
    tokens_.resize(static_cast<std::size_t>(batch));
    positions_.resize(static_cast<std::size_t>(options.capacity));
    std::iota(positions_.begin(), positions_.end(), 0);
    rope_ = {target, options.capacity};
    rotated_ = {target, batch};
    queries_ = {batch, width};
    attention_out_ = {batch, width};
    for (std::int32_t t = 0; t < options.threads; ++t)
      scratch_.emplace_back(slots, round_up(target.head_dim, kPanel));
  }

  void set_target_state(const KeyValuesView<Real>& view) { key_values_ = view; }
  /// Throws std::logic_error if the model needs a view and none, or a stale one, was given.
  void require_view() const {
    if (enabled_) key_values_.cache();
  }

  /// Sets the batch: how much of the view each token sees.
  void set_batch(std::span<const BatchToken> tokens) {
    if (!enabled_) return;
    const std::int32_t size = key_values_.size();
    const auto visible = [&](const BatchToken& token) { return std::min(token.position, size); };
    base_ = size;
    end_ = 0;
    for (const BatchToken& token : tokens) {
      base_ = std::min(base_, visible(token));
      end_ = std::max(end_, visible(token));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens_[i] = tokens[i];
      tokens_[i].path = positions_.data() + base_;
      tokens_[i].path_size = tokens_[i].in_order = visible(tokens[i]) - base_;
    }
  }

  /// Whether any token of the batch sees a key of the target.
  bool active() const { return enabled_ && end_ > 0; }

  /// The cross attention block of layer `l`: reads the decoder's hidden, writes its block_out.
  void run(const Worker& worker, std::int32_t l, DecoderLayer<Real>& decoder) {
    const DecoderConfig& config = decoder.config();
    const LayerWeights<Real>& layer = decoder.weights->layers[static_cast<std::size_t>(l)];
    const std::int32_t count = decoder.count();
    decoder.product.multiply(worker.thread, layer.cross_query, decoder.hidden, queries_, 0, count);
    const auto [first, last] = decoder.product.share(worker.thread, config.target.kv_heads);
    for (std::int32_t head = first; head < last; ++head) attend(worker, l, head, decoder);
    decoder.product.multiply(worker.thread, layer.cross_output, attention_out_, decoder.block_out, 0, count);
  }

 private:
  /// One KV head of the target: rotates the queries as the target rotates its own, attends.
  void attend(const Worker& worker, std::int32_t l, std::int32_t head, DecoderLayer<Real>& decoder) {
    const TargetShape& target = decoder.config().target;
    const std::int32_t size = target.head_dim, group = target.group();
    rotated_.apply_rope(head, queries_, decoder.tokens, rope_, decoder.elementwise);
    const TreeAttention<Real> attention{
        decoder.isa, decoder.elementwise, key_values_.cache(), group, size, base_, end_};
    Real* const out = attention_out_.at(0) + static_cast<std::ptrdiff_t>(head) * group * size;
    attention.run(decoder.config().target_layer(l), head, std::span(tokens_).first(decoder.tokens.size()),
                  rotated_.of(head), out, attention_out_.stride,
                  scratch_[static_cast<std::size_t>(worker.thread)]);
    for (std::int32_t i = 0; i < decoder.count(); ++i)
      if (decoder.token(i).position == 0)  // there is no key before the first token
        std::fill_n(out + i * attention_out_.stride, group * size, Real(0));
  }

  bool enabled_;
  KeyValuesView<Real> key_values_;
  std::vector<BatchToken> tokens_;       // the batch, as the target's keys see it
  std::vector<std::int32_t> positions_;  // 0, 1, 2, ...: their paths
  std::int32_t base_ = 0, end_ = 0;      // keys that every token sees, and that any does
  RopeTable<Real> rope_;                 // the target's
  RotatedQueries<Real> rotated_;
  Activations<Real> queries_, attention_out_;    // (batch, target's heads * head_dim)
  std::vector<AttentionScratch<Real>> scratch_;  // one per thread
};

}  // namespace specula::cpu::detail
