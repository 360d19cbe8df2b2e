// SPDX-License-Identifier: MIT
// Bootstrap intervals over prompts, of ratios of sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/fields.hpp"

namespace specula {

/// A figure and its 95% confidence interval.
struct Interval {
  double value = 0,  ///< the figure
      low = 0,       ///< lower bound
      high = 0;      ///< upper bound
};

/// A figure that is a ratio of sums over prompts: each prompt's numerator and denominator. For tokens per
/// target call these are tokens and calls, for a mean over prompts its values and ones.
struct RatioTerms {
  std::vector<double> over,  ///< (prompts) numerators
      under;                 ///< (prompts) denominators, not negative

  /// Those of one more prompt.
  void add(double above, double below) {
    over.push_back(above);
    under.push_back(below);
  }
  /// 0 if the sum of denominators is 0.
  double ratio() const {
    return quotient(std::accumulate(over.begin(), over.end(), 0.0),
                    std::accumulate(under.begin(), under.end(), 0.0));
  }
  /// a / b, or 0 if b is 0.
  static double quotient(double a, double b) { return b > 0 ? a / b : 0.0; }
};

/// The percentile bootstrap (Efron 1979). Prompts are drawn with replacement, as many as there are, and the
/// figure is computed from those; the interval is from the 2.5% to the 97.5% quantile. All figures of one
/// Bootstrap use the same draws, so a comparison of two pipelines is paired: a prompt that is easy for both
/// does not widen it. The draws depend only on `prompts`, `resamples` and `seed`. Memory: 2 bytes for each
/// prompt and draw.
class Bootstrap {
 public:
  static constexpr std::size_t kResamples = 10000;                                 ///< usual
  static constexpr std::size_t kMost = std::numeric_limits<std::uint16_t>::max();  ///< prompts

  /// Throws std::invalid_argument for fewer than two prompts (one has no interval) or more than 65,535, and
  /// for fewer than 40 resamples.
  explicit Bootstrap(std::size_t prompts, std::size_t resamples = kResamples, std::uint64_t seed = 1)
      : prompts_(prompts) {
    detail::expect_in("Bootstrap: prompts", prompts, std::size_t{2}, kMost);
    detail::expect_in("Bootstrap: resamples", resamples, std::size_t{40}, std::size_t{1} << 24);
    counts_.resize(prompts * resamples);
    std::mt19937_64 bits(seed);  // the standard specifies its numbers, but not those of its distributions
    for (std::size_t r = 0; r < resamples; ++r)
      for (std::size_t p = 0; p < prompts; ++p) ++counts_[r * prompts + bits() % prompts];
  }

  /// The interval of `a.ratio()`. A resample whose denominators are 0 counts as 0. Throws
  /// std::invalid_argument if `a` has another number of prompts. Cost: prompts * resamples additions.
  Interval of(const RatioTerms& a) const { return interval(a.ratio(), ratios(a)); }

  /// The interval of `a.ratio() / b.ratio()`, which compares a figure of two pipelines.
  Interval of(const RatioTerms& a, const RatioTerms& b) const {
    std::vector<double> resampled = ratios(a);
    const std::vector<double> other = ratios(b);
    std::transform(resampled.begin(), resampled.end(), other.begin(), resampled.begin(),
                   RatioTerms::quotient);
    return interval(RatioTerms::quotient(a.ratio(), b.ratio()), std::move(resampled));
  }

 private:
  std::vector<double> ratios(const RatioTerms& terms) const {  // (resamples)
    if (terms.over.size() != prompts_ || terms.under.size() != prompts_)
      throw std::invalid_argument("Bootstrap: terms of " + std::to_string(terms.over.size()) + " and " +
                                  std::to_string(terms.under.size()) + " prompts, must be of " +
                                  std::to_string(prompts_));
    std::vector<double> out;
    out.reserve(counts_.size() / prompts_);
    for (auto drawn = counts_.begin(); drawn != counts_.end(); drawn += static_cast<std::ptrdiff_t>(prompts_))
      out.push_back(
          RatioTerms::quotient(std::inner_product(terms.over.begin(), terms.over.end(), drawn, 0.0),
                               std::inner_product(terms.under.begin(), terms.under.end(), drawn, 0.0)));
    return out;
  }
  static Interval interval(double value, std::vector<double> resampled) {  // their central 95%
    const std::size_t tail = resampled.size() / 40;                        // 2.5%
    const auto low = resampled.begin() + static_cast<std::ptrdiff_t>(tail),
               high = resampled.end() - 1 - static_cast<std::ptrdiff_t>(tail);
    std::nth_element(resampled.begin(), low, resampled.end());
    std::nth_element(low + 1, high, resampled.end());
    return {value, *low, *high};
  }

  std::size_t prompts_;
  std::vector<std::uint16_t> counts_;  // (resamples, prompts) how often each was drawn
};

}  // namespace specula
