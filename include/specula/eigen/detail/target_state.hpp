// What the columns of a pass see of a target that their model is conditioned on.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/eigen/detail/tree_attention.hpp"
#include "specula/eigen/kv_cache.hpp"
#include "specula/eigen/llama_config.hpp"
#include "specula/model/features.hpp"

namespace specula::eigen::detail {

/// Nothing is allocated after the constructor.
template <class Real>
class TargetState {
 public:
  TargetState(const LlamaConfig& config, std::int32_t capacity, std::int32_t columns)
      : conditioned_on_(config.conditioned_on),
        layers_(config.feature_layers),
        states_(layers_.size()),
        eps_(static_cast<Real>(config.rms_norm_eps)) {
    if (conditioned_on_ != Conditioning::key_values) return;
    columns_.resize(static_cast<std::size_t>(columns));
    seen_.resize(static_cast<std::size_t>(capacity));
    std::iota(seen_.begin(), seen_.end(), 0);
  }

  KeyValuesView<Real> key_values;
  FeaturesView<Real> features;

  void set_target_state(const KeyValuesView<Real>& view) { key_values = view; }
  /// Throws std::invalid_argument if it lacks the hidden states behind a layer that the model reads.
  void set_target_state(const FeaturesView<Real>& view) {
    const auto shown = view.layers();
    for (const std::int32_t layer : layers_)
      if (std::find(shown.begin(), shown.end(), layer) == shown.end())
        throw std::invalid_argument(
            "Llama::set_target_state: the target does not show the hidden state behind layer " +
            std::to_string(layer) + ": make it with this model's config().feature_layers in its options");
    for (std::size_t k = 0; k < layers_.size(); ++k)
      states_[k] =
          static_cast<std::size_t>(std::find(shown.begin(), shown.end(), layers_[k]) - shown.begin());
    features = view;
  }

  /// Throws std::logic_error where the model is conditioned on a target and no view, or a stale one, was
  /// given.
  void require_view() const {
    if (conditioned_on_ == Conditioning::key_values) key_values.cache();
    if (conditioned_on_ == Conditioning::features) features.size();
  }

  // ---- features: a column takes that of the token before it

  /// Whether it is the target's; else it is what its parent predicted. The first token takes zeros.
  bool takes_feature(const PassColumn& column) const { return column.position <= features.size(); }

  /// What a head on several layers reads of token `i`: their hidden states, each divided by its root mean
  /// square, as they grow from layer to layer; then the feature.
  void copy_states(std::int32_t i, Real* to) const {
    for (const std::size_t k : states_) {
      const auto state = features.hidden_state(i, k);
      const Real square = std::inner_product(state.begin(), state.end(), state.begin(), Real(0));
      const Real scale = 1 / std::sqrt(square / static_cast<Real>(state.size()) + eps_);
      to = std::transform(state.begin(), state.end(), to, [scale](Real x) { return x * scale; });
    }
    std::copy_n(features.row(i).data(), features.width(), to);
  }

  /// The slot of the token before a column's.
  static std::int32_t parent_slot(const PassColumn& column) {
    return column.path_size > 1 ? column.path[column.path_size - 2] : column.position - 1;
  }

  /// The columns from `first` on that may run together: behind the last is one whose feature they make.
  std::int32_t generation_end(std::span<const PassColumn> columns, std::int32_t first) const {
    const std::int32_t slot = columns[static_cast<std::size_t>(first)].slot;
    std::int32_t last = first + 1;
    for (; last < static_cast<std::int32_t>(columns.size()); ++last) {
      const PassColumn& column = columns[static_cast<std::size_t>(last)];
      if (!takes_feature(column) && parent_slot(column) >= slot) break;
    }
    return last;
  }

  // ---- keys and values: a column sees those before it, which are all that there are for a draft token

  /// How much of them each column sees.
  void see(std::span<const PassColumn> columns) {
    const std::int32_t size = key_values.size();
    const auto visible = [&](const PassColumn& column) { return std::min(column.position, size); };
    base_ = size;
    end_ = 0;
    for (const PassColumn& column : columns) {
      base_ = std::min(base_, visible(column));
      end_ = std::max(end_, visible(column));
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::int32_t more = visible(columns[i]) - base_;
      columns_[i] = columns[i];
      columns_[i].path = seen_.data() + base_;
      columns_[i].path_size = columns_[i].in_order = more;
    }
  }
  /// The `count` columns of see(), as the target's keys see them.
  std::span<const PassColumn> columns(std::size_t count) const { return std::span(columns_).first(count); }
  std::int32_t base() const { return base_; }  // keys that every column sees
  std::int32_t end() const { return end_; }    // that any does

 private:
  Conditioning conditioned_on_;
  std::vector<std::int32_t> layers_;  // of the target, whose hidden states are read
  std::vector<std::size_t> states_;   // where they lie in the view
  Real eps_;
  std::vector<PassColumn> columns_;
  std::vector<std::int32_t> seen_;  // 0, 1, 2, ...: the paths of those
  std::int32_t base_ = 0, end_ = 0;
};

}  // namespace specula::eigen::detail
