// Rotary position embedding (RoPE): a table of cosines and sines per position.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"

namespace specula::cpu::detail {

/// Angle of pair i at position p: p * theta^(-2i / head_dim), with "llama3" scaling reduced at low
/// frequencies.
inline double rope_frequency(const AttentionShape& config, std::int32_t pair) {
  const double plain = std::pow(config.rope_theta, -2.0 * pair / config.head_dim);
  const auto& scaling = config.rope_scaling;
  if (scaling.factor == 0) return plain;
  const double wave = 2 * std::numbers::pi / plain;
  if (wave < scaling.original_max_position / scaling.high_freq_factor) return plain;
  if (wave > scaling.original_max_position / scaling.low_freq_factor) return plain / scaling.factor;
  const double smooth = (scaling.original_max_position / wave - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * plain / scaling.factor + smooth * plain;
}

template <class Real>
class RopeTable {
 public:
  RopeTable() = default;
  RopeTable(const AttentionShape& config, std::int32_t positions)
      : stride_(round_up(config.head_dim / 2, kPanel)) {
    cosine_.resize(static_cast<std::size_t>(stride_) * static_cast<std::size_t>(positions));
    sine_.resize(cosine_.size());
    for (std::int32_t pair = 0; pair < config.head_dim / 2; ++pair) {
      const double frequency = rope_frequency(config, pair);
      for (std::int32_t position = 0; position < positions; ++position) {
        const auto at = static_cast<std::size_t>(stride_ * position + pair);
        cosine_[at] = static_cast<Real>(std::cos(position * frequency));
        sine_[at] = static_cast<Real>(std::sin(position * frequency));
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
