// SPDX-License-Identifier: MIT
// Rotary position embedding (RoPE): a table of cosines and sines per position.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"

namespace specula::cpu::detail {

/// The share of a pair's frequency `plain` that scaling keeps. 1: all of it; 0: it is divided by the factor.
inline double kept_frequency(const AttentionShape& config, std::int32_t pair, double plain) {
  const RopeScaling& scaling = config.rope_scaling;
  constexpr double kTurn = 2 * std::numbers::pi;
  switch (scaling.type) {
    case RopeType::none:
      return 1;
    case RopeType::linear:
      return 0;
    case RopeType::llama3: {
      const double turns = scaling.original_max_position / (kTurn / plain);
      return std::clamp((turns - scaling.low_turns) / (scaling.high_turns - scaling.low_turns), 0.0, 1.0);
    }
    case RopeType::yarn:
      break;
  }
  // The pair, not a whole number, of so many turns.
  const auto pair_of = [&](double turns) {
    return config.head_dim * std::log(scaling.original_max_position / (turns * kTurn)) /
           (2 * std::log(config.rope_theta));
  };
  double first = pair_of(scaling.high_turns), last = pair_of(scaling.low_turns);
  if (scaling.truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0), last = std::min(last, config.head_dim - 1.0);
  if (first == last) last += 0.001;  // as in transformers
  return 1 - std::clamp((pair - first) / (last - first), 0.0, 1.0);
}

/// Angle of pair i at position p, over p: theta^(-2i / head_dim), or what scaling makes of it.
inline double rope_frequency(const AttentionShape& config, std::int32_t pair) {
  const double plain = std::pow(config.rope_theta, -2.0 * pair / config.head_dim),
               kept = kept_frequency(config, pair, plain);
  return (1 - kept) * plain / config.rope_scaling.factor + kept * plain;
}

/// Cosines and sines, times the scaling's attention factor.
template <class Real>
class RopeTable {
 public:
  RopeTable() = default;
  RopeTable(const AttentionShape& config, std::int32_t positions)
      : stride_(round_up(config.head_dim / 2, kPanel)) {
    cosine_.resize(static_cast<std::size_t>(stride_) * static_cast<std::size_t>(positions));
    sine_.resize(cosine_.size());
    const double factor = config.rope_scaling.attention_factor;
    for (std::int32_t pair = 0; pair < config.head_dim / 2; ++pair) {
      const double frequency = rope_frequency(config, pair);
      for (std::int32_t position = 0; position < positions; ++position) {
        const auto at = static_cast<std::size_t>(stride_ * position + pair);
        cosine_[at] = static_cast<Real>(std::cos(position * frequency) * factor);
        sine_[at] = static_cast<Real>(std::sin(position * frequency) * factor);
      }
    }
  }
  const Real* cosine(std::int32_t position) const { return cosine_.data() + stride_ * position; }
  const Real* sine(std::int32_t position) const { return sine_.data() + stride_ * position; }

 private:
  std::ptrdiff_t stride_ = 0;
  AlignedVector<Real> cosine_, sine_;
};

}  // namespace specula::cpu::detail
