// SPDX-License-Identifier: MIT
// One pass of a Llama decoder over a batch of tokens: embedding, layers, LM head (LlamaForCausalLM).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "specula/base/stopwatch.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/attention.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/cross_attention.hpp"
#include "specula/cpu/detail/eagle3_input.hpp"
#include "specula/cpu/detail/feature_input.hpp"
#include "specula/cpu/detail/logit_rows.hpp"
#include "specula/cpu/detail/mlp.hpp"
#include "specula/cpu/detail/model_input.hpp"
#include "specula/cpu/detail/slot_memory.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/cpu/panel_matrix.hpp"
#include "specula/cpu/thread_team.hpp"
#include "specula/model/language_model.hpp"

namespace specula::cpu::detail {

/// What a model of these weights is given.
template <class Real>
std::unique_ptr<ModelInput<Real>> make_input(const DecoderWeights<Real>& weights,
                                             const DecoderOptions& options) {
  switch (weights.config.conditioned_on) {
    case Conditioning::key_values:
      return std::make_unique<KeyValuesInput<Real>>(weights, options);
    case Conditioning::features:
      if (weights.eagle3) return std::make_unique<Eagle3Input<Real>>(weights, options);
      return std::make_unique<FeatureInput<Real>>(weights, options);
    case Conditioning::nothing:
      break;
  }
  return std::make_unique<ModelInput<Real>>(weights, options);
}

/// Owns the blocks of a model and all memory of a pass; run() allocates nothing.
template <class Real>
class DecoderPass {
 public:
  DecoderPass(std::shared_ptr<const DecoderWeights<Real>> weights, const DecoderOptions& options)
      : weights_(std::move(weights)),
        input_(make_input(*weights_, options)),
        batch_(config(), options, most_cols(*weights_, false), bytes(*weights_), most_cols(*weights_, true)),
        attention_(config(), options),
        mlp_(config(), options),
        logits_(*weights_, options.max_nodes * options.slots) {
    if (config().exits.size() > 1) exit_logits_ = {*weights_, options.max_nodes};
    for (std::int32_t l = 0; l < config().layers; ++l) {
      const LayerWeights<Real>& layer = weights_->layers[static_cast<std::size_t>(l)];
      auto& blocks = layers_.emplace_back();
      blocks.push_back(
          std::make_unique<Attention<Real>>(layer.attention, l, attention_, input_->attention_input(l)));
      if (auto block = input_->make_block(l)) blocks.push_back(std::move(block));
      blocks.push_back(std::make_unique<Mlp<Real>>(layer.mlp, l, mlp_));
    }
  }

  const DecoderConfig& config() const { return weights_->config; }
  const std::shared_ptr<const DecoderWeights<Real>>& weights() const { return weights_; }
  const std::shared_ptr<ThreadTeam>& team() const { return batch_.product.team(); }
  ModelInput<Real>& input() { return *input_; }
  const ModelInput<Real>& input() const { return *input_; }
  Activations<Real>& logits() { return logits_.rows(); }
  Activations<Real>& exit_logits() { return exit_logits_.rows(); }

  /// Runs `tokens` of the text of `segment`, which see the slots [0, base) and their paths, and stores their
  /// keys and values. Writes the logits of the tokens from `first_row` on to the rows of logits() from `to`
  /// on. Requires a call of input().require_view() before, since this must not throw. A model may take some
  /// tokens after others.
  void run(std::span<const BatchToken> tokens, Segment<Real> segment, std::int32_t first_row,
           PassPart part = {}, std::int32_t to = 0) {
    part_ = part;
    if (part.last_layer == 0) part_.last_layer = config().layers;
    rows_ = {};
    const auto all = static_cast<std::int32_t>(tokens.size());
    for (std::int32_t first = 0, last; first < all; first = last) {
      last = input_->batch_end(*segment.target, tokens, first);
      segment.last = last - first;
      first_row_ = std::max(0, first_row - first);
      logits_at_ = to + std::max(0, first - first_row);
      run(tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)),
          std::span(&segment, 1));
    }
  }
  /// The same for tokens of several texts, each of whose may run at once. Writes the logits of the tokens
  /// `rows` to rows from `to` on.
  void run(std::span<const BatchToken> tokens, std::span<const Segment<Real>> segments,
           std::span<const std::int32_t> rows, std::int32_t to) {
    part_ = {.last_layer = config().layers};
    rows_ = rows;
    first_row_ = static_cast<std::int32_t>(tokens.size());
    logits_at_ = to;
    run(tokens, segments);
  }

  /// Seconds of the products alone of a pass over `columns` tokens through the first `layers` layers.
  double product_seconds(std::int32_t columns, std::int32_t layers) {
    std::int32_t rows = 0;
    see_matrices(*weights_, layers,
                 [&](const PanelMatrix<Real>& matrix) { rows = std::max(rows, matrix.rows()); });
    Activations<Real> in(columns, most_cols(*weights_, false)), out(columns, rows);
    std::fill(in.values.begin(), in.values.end(), Real(1));
    auto body = [&](std::int32_t thread) {
      see_matrices(*weights_, layers, [&](const PanelMatrix<Real>& matrix) {
        batch_.product.multiply(thread, matrix, in, out, 0, columns);
      });
    };
    const double begin = specula::detail::monotonic_seconds();
    team()->run(body);
    return specula::detail::monotonic_seconds() - begin;
  }

 private:
  void run(std::span<const BatchToken> tokens, std::span<const Segment<Real>> segments) {
    batch_.tokens = tokens;
    batch_.segments = segments;
    input_->set_batch(batch_);
    auto body = [&](std::int32_t thread) {
      const auto [own, own_last] = batch_.product.share(thread, batch_.count());
      run_worker({thread, own, own_last});
    };
    team()->run(body);
  }

  void run_worker(const Worker& worker) {
    if (part_.first_layer == 0)
      input_->run(worker, batch_);
    else
      SlotMemory<Real>::load_exit_states(worker, batch_);
    if (part_.first_layer == 0) SlotMemory<Real>::store_hidden_states(worker, batch_, 0);
    for (std::int32_t l = part_.first_layer; l < part_.last_layer; ++l) {
      for (const auto& block : layers_[static_cast<std::size_t>(l)]) {
        if (part_.skips(block->kind(), l) || !block->active()) continue;
        block->run(worker, batch_);
        if (!part_.skipped) SlotMemory<Real>::store_cosines(worker, batch_, *block);
        batch_.add(worker);
      }
      SlotMemory<Real>::store_hidden_states(worker, batch_, l + 1);
    }
    if (part_.last_layer < config().layers)
      SlotMemory<Real>::store(worker, batch_, batch_.hidden, &SlotMemory<Real>::exit_states);
    batch_.norm(worker, weights_->final_norm);
    const bool before_norm = config().eagle3 && !config().eagle3->norm_output;  // what children are given
    SlotMemory<Real>::store(worker, batch_, before_norm ? batch_.hidden : batch_.normed,
                            &SlotMemory<Real>::features);
    if (!rows_.empty()) return run_rows(worker);
    if (first_row_ < batch_.count())
      (part_.to_exit_logits ? exit_logits_ : logits_)
          .run(worker, weights_->head(), batch_.product, batch_.normed, first_row_, batch_.count(),
               logits_at_);
  }
  /// The LM head over rows_, side by side, so that it is read once for all texts.
  void run_rows(const Worker& worker) {
    batch_.product.barrier();
    const auto count = static_cast<std::int32_t>(rows_.size());
    const auto [first, last] = batch_.product.share(worker.thread, count);
    for (std::int32_t i = first; i < last; ++i)
      std::copy_n(batch_.normed.at(rows_[static_cast<std::size_t>(i)]), batch_.normed.stride,
                  batch_.added.at(i));
    logits_.run(worker, weights_->head(), batch_.product, batch_.added, 0, count, logits_at_);
  }

  /// Columns of the widest matrix, or of the widest with blocks.
  static std::int32_t most_cols(const DecoderWeights<Real>& weights, bool of_blocks) {
    std::int32_t most = 0;
    see_matrices(weights, weights.config.layers, [&](const PanelMatrix<Real>& matrix) {
      if (!of_blocks || matrix.has_blocks()) most = std::max(most, matrix.cols());
    });
    return most;
  }
  static std::size_t bytes(const DecoderWeights<Real>& weights) {
    std::size_t all = 0;
    see_matrices(weights, weights.config.layers,
                 [&](const PanelMatrix<Real>& matrix) { all += matrix.bytes(); });
    return all;
  }
  /// The matrices that a pass through the first `layers` layers multiplies by, in its order.
  template <class See>
  static void see_matrices(const DecoderWeights<Real>& weights, std::int32_t layers, See see) {
    const auto some = [&](const PanelMatrix<Real>& matrix) {
      if (matrix.rows() > 0) see(matrix);
    };
    some(weights.embed_projection);
    if (weights.eagle3) some(weights.eagle3->fusion);
    if (weights.feature_input) some(weights.feature_input->states), some(weights.feature_input->fusion);
    for (std::int32_t l = 0; l < layers; ++l) {
      const LayerWeights<Real>& layer = weights.layers[static_cast<std::size_t>(l)];
      some(layer.attention.qkv), some(layer.attention.output);
      if (layer.cross_attention) some(layer.cross_attention->query), some(layer.cross_attention->output);
      some(layer.mlp.gate_up), some(layer.mlp.down);
    }
    some(weights.head());
  }

  std::shared_ptr<const DecoderWeights<Real>> weights_;
  std::unique_ptr<ModelInput<Real>> input_;
  Batch<Real> batch_;
  AttentionMemory<Real> attention_;
  MlpMemory<Real> mlp_;
  std::vector<std::vector<std::unique_ptr<Block<Real>>>> layers_;  // the blocks of each
  PassPart part_;
  std::span<const std::int32_t> rows_;          // the tokens with logits, if they are not the last ones
  std::int32_t first_row_ = 0, logits_at_ = 0;  // the first token with logits, and their row
  LogitRows<Real> logits_, exit_logits_;
};

}  // namespace specula::cpu::detail
