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
#include "specula/cpu/detail/cross_attention.hpp"
#include "specula/cpu/detail/decoder_layer.hpp"
#include "specula/cpu/detail/feature_input.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/cpu/kv_cache.hpp"
#include "specula/cpu/thread_team.hpp"
#include "specula/model/features.hpp"
#include "specula/model/skipped_blocks.hpp"

namespace specula::cpu::detail {

enum class Block { attention, mlp };  // of a layer

/// The layers and blocks that a pass runs.
struct PassPart {
  std::int32_t first_layer = 0;                     // an earlier pass ran those before it
  std::int32_t last_layer = 0;                      // one after the last; 0: all
  const specula::SkippedBlocks* skipped = nullptr;  // if any
  bool to_exit_logits = false;                      // writes logits to exit_logits() instead

  bool skips_attention(std::int32_t layer) const {
    return skipped && skipped->attention[static_cast<std::size_t>(layer)];
  }
  bool skips_mlp(std::int32_t layer) const {
    return skipped && skipped->mlp[static_cast<std::size_t>(layer)];
  }
};

/// Owns all memory of a pass; run() allocates nothing with Product::small_batch.
template <class Real>
class DecoderPass {
 public:
  DecoderPass(std::shared_ptr<const DecoderWeights<Real>> weights, const DecoderOptions& options)
      : decoder_(weights, options, most_cols(*weights)),
        cross_(config(), options, cache().slots()),
        feature_input_(*weights, options),
        feature_layers_(options.feature_layers) {
    const DecoderConfig& c = config();
    logits_ = {options.max_nodes, c.vocab_size};
    features_ = {cache().slots(), c.hidden_size};
    if (c.exits.size() > 1) {
      exit_hidden_ = {cache().slots(), c.hidden_size};
      exit_logits_ = {options.max_nodes, c.vocab_size};
    }
    const auto states = static_cast<std::int32_t>(feature_layers_.size());
    if (states > 0) hidden_states_ = {cache().slots(), states * c.hidden_size};
    if (options.measure_similarity) cosines(Block::attention) = {c.layers, cache().slots()};
    if (options.measure_mlp_similarity) cosines(Block::mlp) = {c.layers, cache().slots()};
  }

  const DecoderConfig& config() const { return decoder_.config(); }
  const std::shared_ptr<const DecoderWeights<Real>>& weights() const { return decoder_.weights; }
  const std::shared_ptr<ThreadTeam>& team() const { return decoder_.product.team(); }
  KvCache<Real>& cache() { return decoder_.cache; }
  Activations<Real>& logits() { return logits_; }
  Activations<Real>& exit_logits() { return exit_logits_; }
  /// By slot: the input of the LM head.
  Activations<Real>& features() { return features_; }
  /// By slot: the hidden states after the layers of DecoderOptions::feature_layers.
  HiddenStates<Real> hidden_states() {
    return {feature_layers_, hidden_states_.values.data(), hidden_states_.stride};
  }

  /// The target's state for all later passes.
  void set_target_state(const KeyValuesView<Real>& view) { cross_.set_target_state(view); }
  void set_target_state(const FeaturesView<Real>& view) { feature_input_.set_target_state(view); }
  /// Throws std::logic_error if the model is conditioned on a target and no view, or a stale one, was given.
  void require_view() const {
    cross_.require_view();
    feature_input_.require_view();
  }

  /// (layers, slots): the cosine of the residual stream before and after a block of a layer. Empty if not
  /// measured.
  Activations<Real>& cosines(Block block) { return cosines_[static_cast<std::size_t>(block)]; }

  /// Copies all data of the token in slot `from` to slot `to`.
  void move(std::int32_t from, std::int32_t to) {
    if (from == to) return;
    cache().move(from, to);
    features_.copy(from, to);
    exit_hidden_.copy(from, to);
    hidden_states_.copy(from, to);
    for (Activations<Real>& cosines : cosines_)
      for (std::int32_t l = 0; !cosines.values.empty() && l < config().layers; ++l)
        cosines.at(l)[to] = cosines.at(l)[from];
  }

  /// Runs `tokens`, which see the slots [0, base) and their paths, and stores their keys and values. Writes
  /// the logits of the tokens from `first_row` on to logits(). `end` slots are in use. Requires a call of
  /// require_view() before, since this must not throw. A model that reads features runs the tree level by
  /// level, since a token's feature comes from its parent's pass.
  void run(std::span<const BatchToken> tokens, std::int32_t base, std::int32_t end, std::int32_t first_row,
           Product product, PassPart part = {}) {
    decoder_.product.use(product);
    part_ = part;
    if (part.last_layer == 0) part_.last_layer = config().layers;
    const auto all = static_cast<std::int32_t>(tokens.size());
    for (std::int32_t first = 0, last; first < all; first = last) {
      last = feature_input_.level_end(tokens, first);
      decoder_.tokens =
          tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
      first_row_ = std::max(0, first_row - first);
      logits_at_ = std::max(0, first - first_row);
      cross_.set_batch(decoder_.tokens);
      auto body = [&](std::int32_t thread) {
        const auto [own, own_last] = decoder_.product.share(thread, decoder_.count());
        run_worker({thread, own, own_last}, base, end);
      };
      team()->run(body);
    }
  }

 private:
  void run_worker(const Worker& worker, std::int32_t base, std::int32_t end) {
    part_.first_layer == 0 ? embed(worker) : resume(worker);
    for (std::int32_t l = part_.first_layer; l < part_.last_layer; ++l) {
      if (!part_.skips_attention(l)) {
        decoder_.attention(worker, l, base, end);
        measure(worker, Block::attention, l);
        decoder_.add_residual(worker);
      }
      if (cross_.active()) {
        cross_.run(worker, l, decoder_);
        decoder_.add_residual(worker);
      }
      if (part_.skips_mlp(l)) continue;
      decoder_.mlp(worker, l);
      measure(worker, Block::mlp, l);
      decoder_.add_residual(worker);
      store_hidden_state(worker, l + 1);
    }
    if (part_.last_layer < config().layers) store(worker, decoder_.hidden, exit_hidden_);
    decoder_.norm(worker, weights()->final_norm);
    store(worker, decoder_.normed, features_);
    if (first_row_ < decoder_.count())
      decoder_.product.multiply(worker.thread, weights()->head(), decoder_.normed,
                                part_.to_exit_logits ? exit_logits_ : logits_, first_row_, decoder_.count(),
                                logits_at_);
  }

  /// The tokens' inputs. Padding too: NaN or infinity left there by an earlier pass would reach every sum.
  void embed(const Worker& worker) {
    Activations<Real>& to = feature_input_.enabled() ? feature_input_.embedding() : decoder_.hidden;
    for (std::int32_t i = worker.first; i < worker.last; ++i) {
      std::fill(to.at(i) + config().hidden_size, to.at(i) + to.stride, Real(0));
      weights()->tokens().get_row(decoder_.token(i).token, to.at(i));
    }
    if (feature_input_.enabled()) feature_input_.run(worker, features_, decoder_);
  }

  /// The tokens' hidden states at the exit that an earlier pass ran to.
  void resume(const Worker& worker) {
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      std::copy_n(exit_hidden_.at(decoder_.token(i).slot), decoder_.hidden.stride, decoder_.hidden.at(i));
  }

  /// Copies the tokens' activations to their slots.
  void store(const Worker& worker, Activations<Real>& from, Activations<Real>& to) {
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      std::copy_n(from.at(i), from.stride, to.at(decoder_.token(i).slot));
  }

  /// Cosine of the residual stream before and after the block, if measured.
  void measure(const Worker& worker, Block block, std::int32_t layer) {
    Activations<Real>& cosines = this->cosines(block);
    if (cosines.values.empty() || part_.skipped) return;
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      cosines.at(layer)[decoder_.token(i).slot] = decoder_.elementwise.similarity(
          decoder_.hidden.at(i), decoder_.block_out.at(i), config().hidden_size);
  }

  /// Stores the hidden states after this layer, if it is one of DecoderOptions::feature_layers.
  void store_hidden_state(const Worker& worker, std::int32_t layers) {
    const auto found = std::find(feature_layers_.begin(), feature_layers_.end(), layers);
    if (found == feature_layers_.end()) return;
    const std::ptrdiff_t size = config().hidden_size, at = (found - feature_layers_.begin()) * size;
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      std::copy_n(decoder_.hidden.at(i), size, hidden_states_.at(decoder_.token(i).slot) + at);
  }

  /// Columns of the widest matrix.
  static std::int32_t most_cols(const DecoderWeights<Real>& weights) {
    const DecoderConfig& c = weights.config;
    return std::max({2 * c.hidden_size, weights.feature_fusion.cols(), c.intermediate_size,
                     c.heads * c.head_dim, c.target.heads * c.target.head_dim});
  }

  DecoderLayer<Real> decoder_;
  CrossAttention<Real> cross_;        // GLIDE
  FeatureInput<Real> feature_input_;  // EAGLE
  PassPart part_;
  std::int32_t first_row_ = 0, logits_at_ = 0;  // the first token with logits, and their row
  std::vector<std::int32_t> feature_layers_;    // the layers of hidden_states_

  Activations<Real> logits_, exit_logits_;  // (rows, vocab)
  Activations<Real> features_;              // (slots, hidden)
  Activations<Real> exit_hidden_;           // (slots, hidden), if there are exits: input of later layers
  Activations<Real> hidden_states_;         // (slots, n hidden), if feature_layers are set
  Activations<Real> cosines_[2];            // by block: (layers, slots), if measured
};

}  // namespace specula::cpu::detail
