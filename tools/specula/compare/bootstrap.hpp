// SPDX-License-Identifier: MIT
// Bootstrap intervals over prompts, of ratios of sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <specula/study/benchmark.hpp>

namespace specula_tools {

using specula::Interval;

/// A figure that is a ratio of sums over prompts: each prompt's numerator and denominator. For tokens per
/// target call these are tokens and calls, for a mean over prompts its values and ones.
struct Terms {
  std::vector<double> over, under;  // (prompts)

  void add(double above, double below) {
    over.push_back(above);
    under.push_back(below);
  }
  /// 0 if the sum of denominators is 0.
  double ratio() const;
};

/// The percentile bootstrap (Efron 1979). Prompts are drawn with replacement, as many as there are, and the
/// figure is computed from those; the interval is from the 2.5% to the 97.5% quantile. All figures of one
/// Bootstrap use the same draws, so a comparison of two pipelines is paired: a prompt that is easy for both
/// does not widen it. The draws depend only on `prompts`, `resamples` and `seed`. Memory: 2 bytes for each
/// prompt and draw.
class Bootstrap {
 public:
  /// Throws std::invalid_argument for fewer than two prompts (one has no interval) or more than 65,535, and
  /// for fewer than 40 resamples.
  explicit Bootstrap(std::size_t prompts, std::size_t resamples = kResamples, std::uint64_t seed = 1);

  static constexpr std::size_t kResamples = 10000;

  /// The interval of `a.ratio()`. A resample whose denominators are 0 counts as 0. Throws
  /// std::invalid_argument if `a` has another number of prompts. Cost: prompts * resamples additions.
  Interval of(const Terms& a) const;
  /// The interval of `a.ratio() / b.ratio()`, which compares a figure of two pipelines.
  Interval of(const Terms& a, const Terms& b) const;

 private:
  std::vector<double> ratios(const Terms& terms) const;  // (resamples)

  std::size_t prompts_;
  std::vector<std::uint16_t> counts_;  // (resamples, prompts) how often each was drawn
};

}  // namespace specula_tools
