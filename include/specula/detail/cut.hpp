// theta: the logit below which top-k, top-p and min-p drop a token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "../rows.hpp"
#include "../sampling_params.hpp"
#include "row_math.hpp"

namespace specula::detail {

/// Finds the threshold of a row without sorting it. Allocates in the constructor only.
class Cut {
 public:
  explicit Cut(std::int32_t vocab) : vocab_(vocab) {
    values_.resize(static_cast<std::size_t>(vocab) + 1);
    maxima_.resize(static_cast<std::size_t>(tile_count(vocab)));
  }

  /// The largest of the three thresholds. `law` is the row's law without a cut, `top` its largest logit, `maxima` its
  /// tiles' maxima. Cost: the tiles that reach a lower bound of the threshold are read once more; O(V) at worst.
  float threshold(const RowLaw& law, const SamplingParams& params, float top, std::span<const float> maxima) {
    float theta = -std::numeric_limits<float>::infinity();
    double mass = 1;
    bool gathered = false;
    if (params.top_k > 0 && params.top_k < vocab_) {
      gather(law.logits, maxima, top_k_bound(params.top_k, maxima));
      const auto kth = values_.begin() + (params.top_k - 1);
      std::nth_element(values_.begin(), kth, values_.begin() + count_, std::greater<>());
      theta = *kth;
      if (params.top_p < 1.0f) {  // what top-k left, ties included
        count_ = std::partition(values_.begin(), values_.begin() + count_, [&](float l) { return l >= theta; }) - values_.begin();
        std::sort(values_.begin(), values_.begin() + count_, std::greater<>());
        mass = 0;
        for (std::ptrdiff_t i = 0; i < count_; ++i) mass += weight(law, values_[static_cast<std::size_t>(i)]);
        gathered = true;
      }
    }
    if (params.top_p < 1.0f) theta = std::max(theta, nucleus(law, static_cast<double>(params.top_p), mass, gathered, maxima));
    if (params.min_p > 0.0f) {
      const double gap = static_cast<double>(params.temperature) * std::log(static_cast<double>(params.min_p));
      theta = std::max(theta, static_cast<float>(static_cast<double>(top) + gap));
    }
    return std::min(theta, top);
  }

 private:
  static double weight(const RowLaw& law, float logit) { return std::exp(law.inv_t * static_cast<double>(logit) - law.log_z); }

  /// k tiles hold a logit of at least the k-th largest tile maximum, so the k-th largest logit is no smaller.
  float top_k_bound(std::int32_t k, std::span<const float> maxima) {
    if (static_cast<std::size_t>(k) > maxima.size()) return -std::numeric_limits<float>::infinity();
    std::copy(maxima.begin(), maxima.end(), maxima_.begin());
    std::nth_element(maxima_.begin(), maxima_.begin() + (k - 1), maxima_.end(), std::greater<>());
    return maxima_[static_cast<std::size_t>(k - 1)];
  }

  void gather(const float* row, std::span<const float> maxima, float bound) {
    count_ = 0;
    for (std::int32_t t = 0; t < tile_count(vocab_); ++t) {
      if (maxima[static_cast<std::size_t>(t)] < bound) continue;
      const std::int32_t end = std::min(vocab_, (t + 1) * kTile);
      for (std::int32_t x = t * kTile; x < end; ++x) {  // without a branch: where the bound falls is noise
        values_[static_cast<std::size_t>(count_)] = row[x];
        count_ += row[x] >= bound;
      }
    }
  }

  /// Least logit of the smallest set of largest logits that holds at least top_p of `mass`.
  float nucleus(const RowLaw& law, double top_p, double mass, bool gathered, std::span<const float> maxima) {
    if (!gathered) {
      // V tokens lighter than (1 - top_p) / V weigh less than 1 - top_p together: the nucleus lies above them. One part
      // in a thousand of margin pays for the rounding of log_z.
      const double floor = std::log(0.999 * (1.0 - top_p) / static_cast<double>(vocab_));
      gather(law.logits, maxima, static_cast<float>((floor + law.log_z) / law.inv_t));
    }
    double seen = 0;
    const double wanted = top_p * mass;
    std::ptrdiff_t sorted = gathered ? count_ : 0;
    for (std::ptrdiff_t i = 0; i < count_; ++i) {
      if (i == sorted) {  // order no more than is needed, in blocks that double
        const std::ptrdiff_t end = std::min<std::ptrdiff_t>(count_, std::max<std::ptrdiff_t>(64, 2 * sorted));
        std::nth_element(values_.begin() + sorted, values_.begin() + (end - 1), values_.begin() + count_, std::greater<>());
        std::sort(values_.begin() + sorted, values_.begin() + end, std::greater<>());
        sorted = end;
      }
      seen += weight(law, values_[static_cast<std::size_t>(i)]);
      if (seen >= wanted) return values_[static_cast<std::size_t>(i)];
    }
    return count_ > 0 ? values_[static_cast<std::size_t>(count_ - 1)] : -std::numeric_limits<float>::infinity();
  }

  std::int32_t vocab_;
  std::vector<float> values_;  // (V + 1) the logits that may reach the threshold; one more than V for the branchless store
  std::vector<float> maxima_;  // (ceil(V / 512))
  std::ptrdiff_t count_ = 0;
};

}  // namespace specula::detail
