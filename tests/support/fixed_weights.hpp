// SPDX-License-Identifier: MIT
// Weights of a vector, as random sources draw from them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <specula/base/rows.hpp>

namespace specula_test {

/// Implements DrawWeights.
struct FixedWeights {
  std::vector<float> w;
  std::vector<double> masses;

  explicit FixedWeights(std::vector<float> weights) : w(std::move(weights)), masses((w.size() + 511) / 512) {
    for (std::size_t x = 0; x < w.size(); ++x) masses[x / 512] += static_cast<double>(w[x]);
  }
  std::int32_t vocab() const { return static_cast<std::int32_t>(w.size()); }
  double operator()(specula::Token x) const { return static_cast<double>(w[static_cast<std::size_t>(x)]); }
  std::span<const double> tile_masses() const { return masses; }
  void fill(std::int32_t tile, float* out) const {
    for (std::size_t i = 0; i < 512; ++i) {
      const std::size_t x = static_cast<std::size_t>(tile) * 512 + i;
      out[i] = x < w.size() ? w[x] : 0.0f;
    }
  }
};

}  // namespace specula_test
