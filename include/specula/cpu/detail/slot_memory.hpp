// What a decoder keeps of every token of the context and of every node, by slot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/kv_cache.hpp"
#include "specula/model/features.hpp"

namespace specula::cpu::detail {

/// Owns the KV cache, the features, and what options and config ask for besides. Nothing is allocated after
/// the constructor.
template <class Real>
class SlotMemory {
 public:
  SlotMemory(const DecoderConfig& config, const DecoderOptions& options)
      : cache(config.layers, config.kv_heads, config.head_dim, options.capacity),
        features(cache.slots(), config.hidden_size),
        layers_(config.layers),
        feature_layers_(options.feature_layers) {
    if (config.exits.size() > 1) exit_states = {cache.slots(), config.hidden_size};
    const auto states = static_cast<std::int32_t>(feature_layers_.size());
    if (states > 0) hidden_states_ = {cache.slots(), states * config.hidden_size};
    if (options.measure_similarity) cosines(BlockKind::attention) = {layers_, cache.slots()};
    if (options.measure_mlp_similarity) cosines(BlockKind::mlp) = {layers_, cache.slots()};
  }

  /// (layers, slots): the cosine of the residual stream before and after the blocks of a kind. Empty if not
  /// measured.
  Activations<Real>& cosines(BlockKind kind) { return cosines_[static_cast<std::size_t>(kind)]; }
  /// The hidden states after the layers of DecoderOptions::feature_layers.
  HiddenStates<Real> hidden_states() {
    return {feature_layers_, hidden_states_.values.data(), hidden_states_.stride};
  }

  /// Copies the tokens' activations to their slots.
  void store(const Worker& worker, const Batch<Real>& batch, Activations<Real>& from, Activations<Real>& to) {
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      std::copy_n(from.at(i), from.stride, to.at(batch.token(i).slot));
  }
  /// The hidden states at the exit that an earlier pass ran to.
  void load_exit_states(const Worker& worker, Batch<Real>& batch) {
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      std::copy_n(exit_states.at(batch.token(i).slot), batch.hidden.stride, batch.hidden.at(i));
  }
  /// Stores the hidden states after this number of layers, if they are kept.
  void store_hidden_states(const Worker& worker, Batch<Real>& batch, std::int32_t layers) {
    const auto found = std::find(feature_layers_.begin(), feature_layers_.end(), layers);
    if (found == feature_layers_.end()) return;
    const std::ptrdiff_t size = batch.hidden_size(), at = (found - feature_layers_.begin()) * size;
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      std::copy_n(batch.hidden.at(i), size, hidden_states_.at(batch.token(i).slot) + at);
  }
  /// Stores the cosine of the residual stream before and after what a block adds, if it is measured.
  void store_cosines(const Worker& worker, Batch<Real>& batch, const Block<Real>& block) {
    Activations<Real>& cosines = this->cosines(block.kind());
    if (cosines.values.empty()) return;
    for (std::int32_t i = worker.first; i < worker.last; ++i)
      cosines.at(block.layer())[batch.token(i).slot] =
          batch.elementwise.similarity(batch.hidden.at(i), batch.added.at(i), batch.hidden_size());
  }

  /// Copies all data of the token in slot `from` to slot `to`.
  void move(std::int32_t from, std::int32_t to) {
    if (from == to) return;
    cache.move(from, to);
    features.copy(from, to);
    exit_states.copy(from, to);
    hidden_states_.copy(from, to);
    for (Activations<Real>& cosines : cosines_)
      for (std::int32_t l = 0; !cosines.values.empty() && l < layers_; ++l)
        cosines.at(l)[to] = cosines.at(l)[from];
  }

  KvCache<Real> cache;
  Activations<Real> features;     // (slots, hidden): the input of the LM head
  Activations<Real> exit_states;  // (slots, hidden), if there are exits: input of the layers after one

 private:
  std::int32_t layers_;
  std::vector<std::int32_t> feature_layers_;  // the layers of hidden_states_
  Activations<Real> hidden_states_;           // (slots, n hidden)
  Activations<Real> cosines_[3];              // by kind of block; empty for other kinds
};

}  // namespace specula::cpu::detail
