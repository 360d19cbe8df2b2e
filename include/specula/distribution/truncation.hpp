// SPDX-License-Identifier: MIT
// Top-k, top-p and min-p truncation: finds theta, the logit below which a token is dropped.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/distribution/row_math.hpp"

namespace specula::detail {

/// Finds the threshold of a row without sorting it. Allocates 4 V bytes at the first truncation, then never
/// again.
class Truncation {
 public:
  explicit Truncation(std::int32_t vocab) : vocab_(vocab) {}

  /// Whether threshold() needs the distribution's normaliser: only for top-p over the whole row.
  bool needs_sum(const SamplingParams& params) const {
    return params.top_p < 1.0f && !truncates_top_k(params);
  }

  /// The largest of the three thresholds. `distribution` is the row's distribution before truncation
  /// (normalised if needs_sum()), `distribution.shift` the largest logit, `tiles` its tiles' statistics, of
  /// which only the maxima are read. Cost: the tiles that reach a lower bound of the threshold are read once
  /// more, and the logits that reach it are ordered. A flat row with top_p is read ten times.
  float threshold(const Distribution& distribution, const SamplingParams& params,
                  std::span<const TileStats> tiles) {
    const float top = distribution.shift;
    if (values_.empty()) {
      maxima_.resize(static_cast<std::size_t>(tile_count(vocab_)));
      values_.resize(static_cast<std::size_t>(vocab_) + 1);  // last: marks both as allocated
    }
    float theta = -std::numeric_limits<float>::infinity();
    double mass = 1;
    bool gathered = false;
    if (truncates_top_k(params)) {
      gather(distribution.logits, tiles, top_k_bound(params.top_k, tiles));
      if (count_ >= params.top_k) {  // else all logits above -infinity are kept
        const auto kth = values_.begin() + (params.top_k - 1);
        std::nth_element(values_.begin(), kth, values_.begin() + count_, descending);
        theta = *kth;
      }
      if (params.top_p < 1.0f) {  // over what top-k kept, ties included
        count_ =
            std::partition(values_.begin(), values_.begin() + count_, [&](float l) { return l >= theta; }) -
            values_.begin();
        std::sort(values_.begin(), values_.begin() + count_, descending);
        mass = 0;
        for (std::ptrdiff_t i = 0; i < count_; ++i)
          mass += weight(distribution, values_[static_cast<std::size_t>(i)]);
        gathered = true;
      }
    }
    if (params.top_p < 1.0f)
      theta =
          std::max(theta, nucleus(distribution, static_cast<double>(params.top_p), mass, gathered, tiles));
    if (params.min_p > 0.0f) {
      const double gap =
          static_cast<double>(params.temperature) * std::log(static_cast<double>(params.min_p));
      theta = std::max(theta, static_cast<float>(static_cast<double>(top) + gap));
    }
    return std::min(theta, top);
  }

 private:
  bool truncates_top_k(const SamplingParams& params) const {
    return params.top_k > 0 && params.top_k < vocab_;
  }
  static bool descending(float a, float b) { return a > b; }
  static double weight(const Distribution& distribution, float logit) {
    return std::exp(distribution.log_prob(logit));
  }

  /// k tiles hold a logit of at least the k-th largest tile maximum, so the k-th largest logit is no smaller.
  float top_k_bound(std::int32_t k, std::span<const TileStats> tiles) {
    if (static_cast<std::size_t>(k) > tiles.size()) return -std::numeric_limits<float>::infinity();
    for (std::size_t t = 0; t < tiles.size(); ++t) maxima_[t] = tiles[t].maximum;
    std::nth_element(maxima_.begin(), maxima_.begin() + (k - 1), maxima_.end(), descending);
    return maxima_[static_cast<std::size_t>(k - 1)];
  }

  /// Collects the logits in [bound, below), without -infinity, in values_[0, count_).
  void gather(const RowPointer& row, std::span<const TileStats> tiles, float bound,
              float below = std::numeric_limits<float>::infinity()) {
    const float under = std::nextafter(bound, -std::numeric_limits<float>::infinity());
    std::array<float, kTile> padding;
    std::array<std::int32_t, kTile> places;
    count_ = 0;
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      if (tiles[static_cast<std::size_t>(t)].maximum < bound) continue;
      const float* const tile = tile_at(row, vocab_, t, padding);
      const std::int32_t found = kernels().above(tile, under, places.data());
      for (std::int32_t i = 0; i < found; ++i) {  // branch-free: the comparison is unpredictable
        const float logit = tile[places[static_cast<std::size_t>(i)]];
        values_[static_cast<std::size_t>(count_)] = logit;
        count_ += logit < below;
      }
    }
  }

  /// Mass of the tokens with logit >= `bound`.
  double mass_above(Distribution distribution, float bound, std::span<const TileStats> tiles) const {
    distribution.min_logit = bound;
    const Exponent exponent(distribution);
    std::array<float, kTile> padding, weights;
    double mass = 0;
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t)
      if (tiles[static_cast<std::size_t>(t)].maximum >= bound)
        mass += kernels().fill(tile_at(distribution.logits, vocab_, t, padding), exponent, weights.data());
    return mass;
  }

  /// The smallest logit of the nucleus: the smallest set of largest logits that holds at least top_p of
  /// `mass`. `gathered`: values_ holds exactly the logits that may be in it, sorted; else the row is searched
  /// for them.
  float nucleus(const Distribution& distribution, double top_p, double mass, bool gathered,
                std::span<const TileStats> tiles) {
    const double wanted = top_p * mass;
    double seen = 0;
    if (!gathered) {
      // V tokens lighter than (1 - top_p) / V weigh less than 1 - top_p together: the nucleus is above
      // them. A margin of 0.1% covers the rounding of log_z.
      const double least = std::log(0.999 * (1.0 - top_p) / static_cast<double>(vocab_));
      float low = static_cast<float>(static_cast<double>(distribution.shift) +
                                     (least + distribution.log_z) / distribution.inv_t);
      float high = std::numeric_limits<float>::infinity();
      gather(distribution.logits, tiles, low);
      if (count_ > kMany) {  // a flat row: bisect with vector arithmetic before sorting the rest
        for (int halving = 0; halving < 10; ++halving) {
          const float middle = low + (std::min(high, distribution.shift) - low) / 2;
          const double above = mass_above(distribution, middle, tiles);
          if (above >= wanted) {
            low = middle;
          } else {
            high = middle;
            seen = above;
          }
        }
        gather(distribution.logits, tiles, low, high);
      }
    }
    std::ptrdiff_t sorted = gathered ? count_ : 0;
    for (std::ptrdiff_t i = 0; i < count_; ++i) {
      if (i == sorted) {  // sort only as far as needed, in blocks that double
        const std::ptrdiff_t end = std::min<std::ptrdiff_t>(count_, std::max<std::ptrdiff_t>(64, 2 * sorted));
        std::nth_element(values_.begin() + sorted, values_.begin() + (end - 1), values_.begin() + count_,
                         descending);
        std::sort(values_.begin() + sorted, values_.begin() + end, descending);
        sorted = end;
      }
      seen += weight(distribution, values_[static_cast<std::size_t>(i)]);
      if (seen >= wanted) return values_[static_cast<std::size_t>(i)];
    }
    return count_ > 0 ? values_[static_cast<std::size_t>(count_ - 1)]
                      : -std::numeric_limits<float>::infinity();
  }

  static constexpr std::ptrdiff_t kMany = 4096;  // with more candidates, bisects before sorting

  std::int32_t vocab_;
  // (V + 1) the logits that may reach the threshold; one more than V for the branch-free store
  std::vector<float> values_;
  std::vector<float> maxima_;  // (ceil(V / 512))
  std::ptrdiff_t count_ = 0;
};

}  // namespace specula::detail
