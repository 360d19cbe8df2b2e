// SPDX-License-Identifier: MIT
// The members of Decoder: checks of arguments, commit and rollback, views.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/base/stopwatch.hpp"
#include "specula/cpu/decoder.hpp"
#include "specula/cpu/detail/decoder_schedule.hpp"
#include "specula/cpu/detail/load_decoder_weights.hpp"

namespace specula::cpu {

/// Private members of Decoder.
template <class Real>
struct Decoder<Real>::Impl {
  Impl(std::shared_ptr<const DecoderWeights<Real>> weights, const DecoderOptions& given)
      : options(detail::checked<Real>(given)), schedule(fitting(std::move(weights), options), options) {
    const DecoderConfig& config = schedule.pass.config();
    if (options.vocab_size == 0) options.vocab_size = config.vocab_size;
    skipped = SkippedBlocks(config.layers);
    const auto layers = static_cast<std::size_t>(config.layers);
    similarity.resize(options.measure_similarity ? layers : 0);
    mlp_similarity.resize(options.measure_mlp_similarity ? layers : 0);
    if constexpr (!std::is_same_v<Real, float>)
      rounded.resize(static_cast<std::size_t>(options.max_nodes) * static_cast<std::size_t>(options.slots) *
                     static_cast<std::size_t>(options.vocab_size));
  }

  using Text = detail::DecoderText<Real>;

  [[noreturn]] static void fail(const std::string& what) { throw std::invalid_argument("Decoder::" + what); }

  /// Of slot 0, which the members that name none mean.
  Text& first() { return *schedule.texts.front(); }
  const Text& first() const { return *schedule.texts.front(); }
  detail::DecoderStages& stages() { return first().stages; }
  const detail::DecoderStages& stages() const { return first().stages; }
  /// Of any slot.
  Text& text(std::int32_t slot) const {
    if (slot < 0 || slot >= options.slots)
      fail("slot " + std::to_string(slot) + ", must be 0 to " + std::to_string(options.slots - 1));
    return *schedule.texts[static_cast<std::size_t>(slot)];
  }

  /// Writes to `means`, which has `layers` entries, or 0 if not measured.
  std::span<const double> mean_cosines(detail::BlockKind kind, std::vector<double>& means) {
    schedule.calculate_pending(first());
    if (stages().size() == 0) return {};
    for (std::size_t l = 0; l < means.size(); ++l) {
      const Real* const of_layer = first().memory.cosines(kind).at(static_cast<std::ptrdiff_t>(l));
      means[l] = std::accumulate(of_layer, of_layer + stages().size(), 0.0) / stages().size();
    }
    return means;
  }

  /// Returns `weights` after checking the options against them. They choose the cache's type, if no option
  /// does.
  static std::shared_ptr<const DecoderWeights<Real>> fitting(
      std::shared_ptr<const DecoderWeights<Real>> weights, DecoderOptions& options) {
    if (!weights) throw std::invalid_argument("Decoder: no weights");
    const DecoderConfig& config = weights->config;
    detail::require_option("vocab_size", options.vocab_size, 0, config.vocab_size);
    if (options.vocab_size > 0 && !weights->draft_tokens.empty() &&
        weights->draft_tokens.front() >= options.vocab_size)
      throw std::invalid_argument("DecoderOptions::vocab_size is " + std::to_string(options.vocab_size) +
                                  ", must be above " + std::to_string(weights->draft_tokens.front()) +
                                  ", the first token of the draft vocabulary");
    for (std::size_t k = 0; k < options.feature_layers.size(); ++k)
      detail::require_option("feature_layers", options.feature_layers[k],
                             k ? options.feature_layers[k - 1] + 1 : 0, config.layers);
    if (!options.cache) options.cache = cache_type(*weights, options.isa);
    return weights;
  }

  void check_tokens(Tokens tokens) const {
    for (const Token token : tokens)
      if (token < 0 || token >= options.vocab_size)
        fail("extend or append: token " + std::to_string(token) + ", must be 0 to " +
             std::to_string(options.vocab_size - 1));
  }

  void check_room(std::int32_t used, std::size_t wanted, const char* call) const {
    if (wanted > static_cast<std::size_t>(options.capacity - used))
      fail(std::string(call) + ": the context is full: " + std::to_string(used) + " of capacity " +
           std::to_string(options.capacity) + " tokens in use, " + std::to_string(wanted) +
           " more asked for");
  }

  void check_exit(std::int32_t exit) const {
    if (exit < 0 || exit >= stages().count())
      fail("exit " + std::to_string(exit) + ", must be 0 to " + std::to_string(stages().count() - 1));
  }

  void check_nodes(const Text& text, Tokens tokens, Nodes parents) const {
    const detail::DecoderStages& stages = text.stages;
    check_tokens(tokens);
    if (parents.size() != tokens.size())
      fail("extend: " + std::to_string(tokens.size()) + " tokens and " + std::to_string(parents.size()) +
           " parents");
    if (tokens.size() > static_cast<std::size_t>(options.max_nodes - stages.node_count()))
      fail("extend: " + std::to_string(stages.node_count()) + " nodes and " + std::to_string(tokens.size()) +
           " more, but max_nodes is " + std::to_string(options.max_nodes));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (parents[i] != kNoParent &&
          (parents[i] < 0 || parents[i] >= stages.node_count() + static_cast<NodeId>(i)))
        fail("extend: parent " + std::to_string(parents[i]) + " of node " +
             std::to_string(stages.node_count() + static_cast<NodeId>(i)) +
             ", must be an earlier node or kNoParent");
    check_room(stages.size() + stages.node_count(), tokens.size(), "extend");
  }
  /// That nodes without skipped blocks may follow.
  void check_skips(const Text& text) const {
    if (text.stages.skips()) fail("extend: there are nodes of extend_skipping(); truncate() first");
  }
  void check_path(const Text& text, Nodes path) const {
    const detail::DecoderStages& stages = text.stages;
    if (stages.skips() && !path.empty()) fail("commit: nodes of extend_skipping() cannot be committed");
    for (std::size_t i = 0; i < path.size(); ++i) {
      const NodeId node = path[i], parent = i == 0 ? kNoParent : path[i - 1];
      if (node < 0 || node >= stages.node_count())
        fail("commit: node " + std::to_string(node) + ", must be 0 to " +
             std::to_string(stages.node_count() - 1));
      if (stages.node(node).parent != parent)
        fail("commit: node " + std::to_string(node) + " is no child of " +
             (parent == kNoParent ? "the context" : "node " + std::to_string(parent)) +
             ", must be a path from the context down");
    }
  }
  void check_size(const Text& text, std::int32_t n) const {
    if (n < 0 || n > text.stages.size())
      fail("truncate: to " + std::to_string(n) + " tokens, must be 0 to " +
           std::to_string(text.stages.size()));
  }

  /// Moves what is kept of the path's tokens behind the context.
  static void commit(Text& text, Nodes path) {
    const std::int32_t context = text.stages.size();
    for (std::size_t i = 0; i < path.size(); ++i)
      text.memory.move(context + path[i], context + static_cast<std::int32_t>(i));
    text.stages.commit(path);
  }

  void add_nodes(Tokens tokens, Nodes parents, bool skips) {
    first_row = stages().node_count();
    rows = static_cast<std::int32_t>(tokens.size());
    stages().add_nodes(tokens, parents, skips);
  }

  /// Room for `tokens` tokens of a text.
  void reserve(std::int32_t slot, Text& text, std::int32_t tokens) const {
    try {
      text.memory.reserve(tokens, options.capacity);
    } catch (const std::bad_alloc&) {
      const DecoderConfig& config = schedule.pass.config();
      throw std::runtime_error("Decoder::extend: no memory for " + std::to_string(tokens) +
                               " tokens of slot " + std::to_string(slot) + ": their keys and values take " +
                               std::to_string(std::int64_t{2} * config.layers * config.kv_heads *
                                              config.head_dim * static_cast<std::int64_t>(sizeof(Real)) *
                                              tokens) +
                               " bytes");
    }
  }

  /// The rows of the last extend().
  LogitsView view() {
    if constexpr (std::is_same_v<Real, float>) {
      return {schedule.pass.logits().at(0), rows, options.vocab_size, schedule.pass.logits().stride};
    } else {
      for (std::int32_t r = 0; r < rows; ++r)
        std::transform(schedule.pass.logits().at(r), schedule.pass.logits().at(r) + options.vocab_size,
                       rounded.begin() + static_cast<std::ptrdiff_t>(r) * options.vocab_size,
                       [](Real value) { return static_cast<float>(value); });
      return {rounded.data(), rows, options.vocab_size, options.vocab_size};
    }
  }

  DecoderOptions options;
  detail::DecoderSchedule<Real> schedule;
  std::int32_t first_row = 0, rows = 0;            // of the last extend(): first node, number of rows
  SkippedBlocks skipped;                           // blocks that the nodes skip, if any
  std::vector<double> similarity, mlp_similarity;  // (layers), as returned
  std::vector<float> rounded;                      // (rows, V), unless Real is float
};

template <class Real>
Decoder<Real>::Decoder(const std::filesystem::path& directory, const DecoderOptions& options)
    : Decoder(std::make_shared<const DecoderWeights<Real>>(load_decoder_weights<Real>(directory)), options) {}

template <class Real>
Decoder<Real>::Decoder(std::shared_ptr<const DecoderWeights<Real>> weights, const DecoderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(weights), options)) {}

template <class Real>
Decoder<Real>::Decoder(Decoder&&) noexcept = default;
template <class Real>
Decoder<Real>& Decoder<Real>::operator=(Decoder&&) noexcept = default;
template <class Real>
Decoder<Real>::~Decoder() = default;

template <class Real>
const DecoderConfig& Decoder<Real>::config() const {
  return impl_->schedule.pass.config();
}

template <class Real>
const DecoderOptions& Decoder<Real>::options() const {
  return impl_->options;
}

template <class Real>
std::int32_t Decoder<Real>::vocab_size() const {
  return impl_->options.vocab_size;
}

template <class Real>
std::int32_t Decoder<Real>::layers() const {
  return config().layers;
}

template <class Real>
std::int32_t Decoder<Real>::size() const {
  return impl_->stages().size();
}

template <class Real>
std::int32_t Decoder<Real>::capacity() const {
  return impl_->options.capacity;
}

template <class Real>
std::int32_t Decoder<Real>::node_count() const {
  return impl_->stages().node_count();
}

template <class Real>
std::uint64_t Decoder<Real>::change_count() const {
  return change_count_.now();
}

template <class Real>
double Decoder<Real>::pass_seconds() const {
  return team()->size() == 1 ? specula::detail::thread_seconds() : specula::detail::monotonic_seconds();
}

template <class Real>
void Decoder<Real>::append(Tokens tokens) {
  impl_->check_tokens(tokens);
  impl_->check_room(size(), tokens.size(), "append");
  impl_->schedule.pass.input().require_view(impl_->first().target);
  impl_->reserve(0, impl_->first(), size() + static_cast<std::int32_t>(tokens.size()));
  change_count_.next();
  impl_->stages().clear_nodes();
  impl_->schedule.append(impl_->first(), tokens);
}

template <class Real>
LogitsView Decoder<Real>::extend(Tokens tokens, Nodes parents) {
  return extend_to_exit(tokens, parents, exits() - 1);
}

template <class Real>
void Decoder<Real>::commit(Nodes path) {
  impl_->check_path(impl_->first(), path);
  change_count_.next();
  impl_->commit(impl_->first(), path);
}

template <class Real>
void Decoder<Real>::truncate(std::int32_t n) {
  impl_->check_size(impl_->first(), n);
  change_count_.next();
  impl_->stages().truncate(n);
}

template <class Real>
KeyValuesView<Real> Decoder<Real>::key_values() {
  return key_values(0);
}

template <class Real>
FeaturesView<Real> Decoder<Real>::features() {
  return features(0);
}

template <class Real>
void Decoder<Real>::set_target_state(const KeyValuesView<Real>& view) {
  set_target_state(0, view);
}

template <class Real>
void Decoder<Real>::set_target_state(const FeaturesView<Real>& view) {
  set_target_state(0, view);
}

template <class Real>
bool Decoder<Real>::keeps_speculation() const {
  return impl_->schedule.pass.input().keeps_speculation();
}

template <class Real>
double Decoder<Real>::product_seconds(std::int32_t nodes, std::int32_t exit) {
  impl_->check_exit(exit);
  if (nodes < 1 || nodes > impl_->options.max_nodes)
    Impl::fail("product_seconds: " + std::to_string(nodes) + " nodes, must be 1 to " +
               std::to_string(impl_->options.max_nodes));
  return impl_->schedule.pass.product_seconds(nodes, layers_to(exit));
}

template <class Real>
const std::shared_ptr<ThreadTeam>& Decoder<Real>::team() const {
  return impl_->schedule.pass.team();
}

template <class Real>
const std::shared_ptr<const DecoderWeights<Real>>& Decoder<Real>::weights() const {
  return impl_->schedule.pass.weights();
}

template <class Real>
std::span<const Real> Decoder<Real>::logits(std::int32_t index) {
  if (index < 0 || index >= impl_->rows)
    Impl::fail("logits: row " + std::to_string(index) + ", must be 0 to " + std::to_string(impl_->rows - 1));
  return {impl_->schedule.pass.logits().at(index), static_cast<std::size_t>(vocab_size())};
}

}  // namespace specula::cpu
