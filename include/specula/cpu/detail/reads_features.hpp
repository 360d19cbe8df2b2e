// SPDX-License-Identifier: MIT
// What inputs of heads on a target's features have in common (EAGLE, Li et al. 2024): a token takes what the
// target made of the token before it, or what the head itself made of that, so a tree runs level by level.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/model_input.hpp"
#include "specula/cpu/detail/tree_attention.hpp"
#include "specula/model/features.hpp"

namespace specula::cpu::detail {

/// `width`: of the target's features; `layers`: numbers of its layers whose hidden states are read.
template <class Real>
class ReadsFeatures : public ModelInput<Real> {
 public:
  ReadsFeatures(const DecoderWeights<Real>& weights, const DecoderOptions& options, std::int32_t width,
                std::vector<std::int32_t> layers)
      : ModelInput<Real>(weights, options), width_(width), layers_(std::move(layers)) {}

  void set_target_state(TargetState<Real>& state, const FeaturesView<Real>& view) override {
    if (view.width() != width_)
      this->fail("features of width " + std::to_string(view.width()) + ", the model's hidden size is " +
                 std::to_string(width_));
    const auto shown = view.layers();
    for (const std::int32_t layer : layers_)
      if (std::find(shown.begin(), shown.end(), layer) == shown.end())
        this->fail("the target does not show the hidden state after layer " + std::to_string(layer) +
                   ": make it with this model's config().feature_layers in its options");
    state.states.clear();
    for (const std::int32_t layer : layers_)
      state.states.push_back(
          static_cast<std::size_t>(std::find(shown.begin(), shown.end(), layer) - shown.begin()));
    state.features = view;
  }
  using ModelInput<Real>::set_target_state;

  void require_view(const TargetState<Real>& state) const override { state.features.size(); }

  /// The feature of the token after the batch comes from this batch.
  std::int32_t batch_end(const TargetState<Real>& state, std::span<const BatchToken> tokens,
                         std::int32_t first) const override {
    const auto all = static_cast<std::int32_t>(tokens.size());
    const std::int32_t slot = tokens[static_cast<std::size_t>(first)].slot;
    std::int32_t last = first + 1;
    for (; last < all; ++last) {
      const BatchToken& token = tokens[static_cast<std::size_t>(last)];
      if (!has_target_feature(state, token) && parent_slot(token) >= slot) break;
    }
    return last;
  }

 protected:
  /// Whether the feature of the token before is the target's; otherwise this model predicted it. The first
  /// token has zeros.
  static bool has_target_feature(const TargetState<Real>& state, const BatchToken& token) {
    return token.position <= state.features.size();
  }
  /// The slot of the token before.
  static std::int32_t parent_slot(const BatchToken& token) {
    return token.path_size > 1 ? token.path[token.path_size - 2] : token.position - 1;
  }

 private:
  std::int32_t width_;
  std::vector<std::int32_t> layers_;
};

}  // namespace specula::cpu::detail
