// SPDX-License-Identifier: MIT
// The residual (keep - less)+: the distribution that replaces a rejected draft token in a review.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "specula/base/rows.hpp"
#include "specula/distribution/row_scan.hpp"

namespace specula::detail {

/// Weights (keep - less)+ over the vocabulary. Requires that `keep` is no point mass; `less` may be one.
/// `masses` is workspace, (ceil(V / 512)). Cost of the constructor: one read of both rows.
class ResidualWeights {
 public:
  ResidualWeights(const Distribution& keep, const Distribution& less, std::int32_t vocab,
                  std::span<double> masses)
      : keep_(keep), less_(less), vocab_(vocab), masses_(masses) {
    for (std::int32_t t = 0; t < tile_count(vocab); ++t)
      masses_[static_cast<std::size_t>(t)] = tile_mass(*this, t);
    total_ = merge_tiles(masses_);
  }

  double total() const { return total_; }

  // The interface of Rng::draw's weights.
  std::int32_t vocab() const { return vocab_; }
  std::span<const double> tile_masses() const { return masses_; }
  double operator()(Token token) const {
    const double weight = keep_(token) - less_(token);
    return weight > 0 ? weight : 0.0;
  }
  void fill(std::int32_t tile, float* weights) const {
    std::array<float, kTile> less;
    fill_tile(keep_, vocab_, tile, weights);
    fill_tile(less_, vocab_, tile, less.data());
    kernels().subtract(weights, less.data(), 1.0f, 1.0f);
  }

 private:
  Distribution keep_, less_;
  std::int32_t vocab_;
  std::span<double> masses_;
  double total_ = 0;
};

}  // namespace specula::detail
