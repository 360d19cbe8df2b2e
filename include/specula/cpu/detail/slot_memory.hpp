// SPDX-License-Identifier: MIT
// What a decoder keeps of every token of the context and of every node, by slot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/team_product.hpp"
#include "specula/cpu/inputs.hpp"
#include "specula/cpu/kv_cache.hpp"
#include "specula/model/features.hpp"

namespace specula::cpu::detail {

/// Owns the KV cache, the features, and what options and config ask for besides, of one text. Nothing is
/// allocated after the constructor, but by reserve().
template <class Real>
class SlotMemory {
 public:
  SlotMemory(const DecoderConfig& config, const DecoderOptions& options)
      : cache(config.layers, config.kv_heads, config.head_dim,
              options.slots > 1 ? std::min(options.capacity, kFirst) : options.capacity,
              options.cache.value_or(CacheType::full), options.isa),
        features(cache.slots(), config.hidden_size),
        layers_(config.layers),
        feature_layers_(options.feature_layers) {
    if (config.exits.size() > 1) exit_states = {cache.slots(), config.hidden_size};
    const auto states = static_cast<std::int32_t>(feature_layers_.size());
    if (states > 0) hidden_states_ = {cache.slots(), states * config.hidden_size};
    if (options.measure_similarity) cosines(BlockKind::attention) = {layers_, options.capacity};
    if (options.measure_mlp_similarity) cosines(BlockKind::mlp) = {layers_, options.capacity};
  }

  /// Room for `tokens`, and more up to `most`. Throws std::bad_alloc; what there is stays.
  void reserve(std::int32_t tokens, std::int32_t most) {
    if (tokens <= cache.slots()) return;
    const std::int32_t slots = round_up(std::min(most, std::max(tokens, 2 * cache.slots())), kPanel);
    for (Activations<Real>* of_tokens : {&features, &exit_states, &hidden_states_}) of_tokens->grow(slots);
    cache.grow(slots);
  }
  /// The first `tokens` tokens become those of `other`, which must be of the same model.
  void copy(const SlotMemory& other, std::int32_t tokens) {
    cache.copy(other.cache, tokens);
    for (const auto part : {&SlotMemory::features, &SlotMemory::exit_states, &SlotMemory::hidden_states_})
      std::copy_n((other.*part).values.begin(), tokens * (other.*part).stride, (this->*part).values.begin());
    for (std::size_t kind = 0; kind < std::size(cosines_); ++kind)
      for (std::int32_t l = 0; !cosines_[kind].values.empty() && l < layers_; ++l)
        std::copy_n(other.cosines_[kind].values.begin() + l * other.cosines_[kind].stride, tokens,
                    cosines_[kind].at(l));
  }

  /// (layers, slots): the cosine of the residual stream before and after the blocks of a kind. Empty if not
  /// measured.
  Activations<Real>& cosines(BlockKind kind) { return cosines_[static_cast<std::size_t>(kind)]; }
  /// The hidden states after the layers of DecoderOptions::feature_layers.
  HiddenStates<Real> hidden_states() {
    return {feature_layers_, hidden_states_.values.data(), hidden_states_.stride};
  }

  /// Copies the batch's activations to the slots of its tokens.
  static void store(const Worker& worker, const Batch<Real>& batch, Activations<Real>& from,
                    Activations<Real> SlotMemory::*to) {
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      std::copy_n(from.at(i), from.stride, (segment.memory->*to).at(batch.token(i).slot));
    });
  }
  /// The hidden states at the exit that an earlier pass ran to.
  static void load_exit_states(const Worker& worker, Batch<Real>& batch) {
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      std::copy_n(segment.memory->exit_states.at(batch.token(i).slot), batch.hidden.stride,
                  batch.hidden.at(i));
    });
  }
  /// Stores the hidden states after this number of layers, if they are kept.
  static void store_hidden_states(const Worker& worker, Batch<Real>& batch, std::int32_t layers) {
    const auto& kept = batch.segments.front().memory->feature_layers_;
    const auto found = std::find(kept.begin(), kept.end(), layers);
    if (found == kept.end()) return;
    const std::ptrdiff_t size = batch.hidden_size(), at = (found - kept.begin()) * size;
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      std::copy_n(batch.hidden.at(i), size, segment.memory->hidden_states_.at(batch.token(i).slot) + at);
    });
  }
  /// Stores the cosine of the residual stream before and after what a block adds, if it is measured.
  static void store_cosines(const Worker& worker, Batch<Real>& batch, const Block<Real>& block) {
    if (batch.segments.front().memory->cosines(block.kind()).values.empty()) return;
    batch.for_own(worker, [&](std::int32_t i, const Segment<Real>& segment) {
      segment.memory->cosines(block.kind()).at(block.layer())[batch.token(i).slot] =
          batch.elementwise.similarity(batch.hidden.at(i), batch.added.at(i), batch.hidden_size());
    });
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
  static constexpr std::int32_t kFirst = 128;  // tokens of one text among several, to begin with

  std::int32_t layers_;
  std::vector<std::int32_t> feature_layers_;  // the layers of hidden_states_
  Activations<Real> hidden_states_;           // (slots, n hidden)
  Activations<Real> cosines_[3];              // by kind of block; empty for other kinds
};

}  // namespace specula::cpu::detail
