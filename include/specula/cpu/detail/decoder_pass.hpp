// One pass of a Llama decoder over a batch of tokens: embedding, layers, LM head (LlamaForCausalLM).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/attention.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/cross_attention.hpp"
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

/// What a model of these weights is given. `features`: by slot, the features that it predicts.
template <class Real>
std::unique_ptr<ModelInput<Real>> make_input(const DecoderWeights<Real>& weights,
                                             const DecoderOptions& options, Activations<Real>& features) {
  switch (weights.config.conditioned_on) {
    case Conditioning::key_values:
      return std::make_unique<KeyValuesInput<Real>>(weights, options);
    case Conditioning::features:
      return std::make_unique<FeatureInput<Real>>(weights, options, features);
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
        slots_(config(), options),
        input_(make_input(*weights_, options, slots_.features)),
        batch_(config(), options, most_cols(*weights_), bytes(*weights_)),
        attention_(config(), options, slots_.cache),
        mlp_(config(), options),
        logits_(*weights_, options.max_nodes) {
    if (config().exits.size() > 1) exit_logits_ = {*weights_, options.max_nodes};
    for (std::int32_t l = 0; l < config().layers; ++l) {
      const LayerWeights<Real>& layer = weights_->layers[static_cast<std::size_t>(l)];
      auto& blocks = layers_.emplace_back();
      blocks.push_back(std::make_unique<Attention<Real>>(layer.attention, l, attention_));
      if (auto block = input_->make_block(l)) blocks.push_back(std::move(block));
      blocks.push_back(std::make_unique<Mlp<Real>>(layer.mlp, l, mlp_));
    }
  }

  const DecoderConfig& config() const { return weights_->config; }
  const std::shared_ptr<const DecoderWeights<Real>>& weights() const { return weights_; }
  const std::shared_ptr<ThreadTeam>& team() const { return batch_.product.team(); }
  /// What is kept of every token.
  SlotMemory<Real>& slots() { return slots_; }
  ModelInput<Real>& input() { return *input_; }
  const ModelInput<Real>& input() const { return *input_; }
  Activations<Real>& logits() { return logits_.rows(); }
  Activations<Real>& exit_logits() { return exit_logits_.rows(); }

  /// Runs `tokens`, which see the slots [0, base) and their paths, and stores their keys and values. Writes
  /// the logits of the tokens from `first_row` on to logits(). `end` slots are in use. Requires a call of
  /// input().require_view() before, since this must not throw. A model may take some tokens after others.
  void run(std::span<const BatchToken> tokens, std::int32_t base, std::int32_t end, std::int32_t first_row,
           PassPart part = {}) {
    batch_.base = base;
    batch_.end = end;
    part_ = part;
    if (part.last_layer == 0) part_.last_layer = config().layers;
    const auto all = static_cast<std::int32_t>(tokens.size());
    for (std::int32_t first = 0, last; first < all; first = last) {
      last = input_->batch_end(tokens, first);
      batch_.tokens = tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
      first_row_ = std::max(0, first_row - first);
      logits_at_ = std::max(0, first - first_row);
      input_->set_batch(batch_.tokens);
      auto body = [&](std::int32_t thread) {
        const auto [own, own_last] = batch_.product.share(thread, batch_.count());
        run_worker({thread, own, own_last});
      };
      team()->run(body);
    }
  }

 private:
  void run_worker(const Worker& worker) {
    if (part_.first_layer == 0)
      input_->run(worker, batch_);
    else
      slots_.load_exit_states(worker, batch_);
    for (std::int32_t l = part_.first_layer; l < part_.last_layer; ++l) {
      for (const auto& block : layers_[static_cast<std::size_t>(l)]) {
        if (part_.skips(block->kind(), l) || !block->active()) continue;
        block->run(worker, batch_);
        if (!part_.skipped) slots_.store_cosines(worker, batch_, *block);
        batch_.add(worker);
      }
      slots_.store_hidden_states(worker, batch_, l + 1);
    }
    if (part_.last_layer < config().layers) slots_.store(worker, batch_, batch_.hidden, slots_.exit_states);
    batch_.norm(worker, weights_->final_norm);
    slots_.store(worker, batch_, batch_.normed, slots_.features);
    if (first_row_ < batch_.count())
      (part_.to_exit_logits ? exit_logits_ : logits_)
          .run(worker, weights_->head(), batch_, first_row_, logits_at_);
  }

  /// Columns of the widest matrix.
  static std::int32_t most_cols(const DecoderWeights<Real>& weights) {
    std::int32_t most = 0;
    see_matrices(weights, [&](const PanelMatrix<Real>& matrix) { most = std::max(most, matrix.cols()); });
    return most;
  }
  static std::size_t bytes(const DecoderWeights<Real>& weights) {
    std::size_t all = 0;
    see_matrices(weights, [&](const PanelMatrix<Real>& matrix) { all += matrix.bytes(); });
    return all;
  }
  /// The matrices that a pass multiplies by.
  template <class See>
  static void see_matrices(const DecoderWeights<Real>& weights, See see) {
    see(weights.head()), see(weights.embed_projection);
    if (weights.feature_input) see(weights.feature_input->fusion), see(weights.feature_input->states);
    for (const LayerWeights<Real>& layer : weights.layers) {
      see(layer.attention.qkv), see(layer.attention.output);
      if (layer.cross_attention) see(layer.cross_attention->query), see(layer.cross_attention->output);
      see(layer.mlp.gate_up), see(layer.mlp.down);
    }
  }

  std::shared_ptr<const DecoderWeights<Real>> weights_;
  SlotMemory<Real> slots_;
  std::unique_ptr<ModelInput<Real>> input_;
  Batch<Real> batch_;
  AttentionMemory<Real> attention_;
  MlpMemory<Real> mlp_;
  std::vector<std::vector<std::unique_ptr<Block<Real>>>> layers_;  // the blocks of each
  PassPart part_;
  std::int32_t first_row_ = 0, logits_at_ = 0;  // the first token with logits, and their row
  LogitRows<Real> logits_, exit_logits_;
};

}  // namespace specula::cpu::detail
