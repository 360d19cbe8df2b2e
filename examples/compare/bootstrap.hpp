// Bootstrap intervals over prompts, of ratios of sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <specula/run/benchmark.hpp>

namespace specula_examples {

using specula::Interval;

/// A figure that is a ratio of sums over prompts: what each prompt adds above and below the bar. Tokens per
/// target call: tokens and calls. A mean over prompts: its values and ones.
struct Terms {
  std::vector<double> over, under;  // (prompts)

  void add(double above, double below) {
    over.push_back(above);
    under.push_back(below);
  }
  /// 0 where nothing is below the bar.
  double ratio() const;
};

/// The percentile bootstrap (Efron 1979). Prompts are drawn with replacement, as many as there are, and the
/// figure is calculated from those; the interval reaches from the 2.5% to the 97.5% point of what that gives.
/// Every figure of one Bootstrap sees the same draws, so a comparison of two pipelines is paired: a prompt
/// that is easy for both moves neither. The draws depend on `prompts`, `resamples` and `seed` alone. Memory:
/// 2 bytes for each prompt and draw.
class Bootstrap {
 public:
  /// Throws std::invalid_argument for fewer than two prompts (one has no interval) or more than 65,535, and
  /// for fewer than 40 resamples.
  explicit Bootstrap(std::size_t prompts, std::size_t resamples = kResamples, std::uint64_t seed = 1);

  static constexpr std::size_t kResamples = 10000;

  /// Of `a.ratio()`. A resample in which nothing is below the bar counts as 0. Throws std::invalid_argument
  /// if `a` is of another number of prompts. Cost: prompts * resamples additions.
  Interval of(const Terms& a) const;
  /// Of `a.ratio() / b.ratio()`: by how much a figure of one pipeline is that of another.
  Interval of(const Terms& a, const Terms& b) const;

 private:
  std::vector<double> ratios(const Terms& terms) const;  // (resamples)

  std::size_t prompts_;
  std::vector<std::uint16_t> counts_;  // (resamples, prompts) how often each was drawn
};

}  // namespace specula_examples
