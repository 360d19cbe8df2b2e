// T(n): what a model's pass over n nodes costs, given or learned from the passes that were made.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../detail/compiler_options.hpp"
#include "../detail/fields.hpp"

namespace specula {

/// Seconds (or any other unit) by nodes. A learned curve is a straight line through the running means of the
/// sizes that were seen, and at each such size the line and its own mean, mixed by how often it was seen of
/// late: a size seen once says little (a thread may have slept), one seen often all, one not seen for long is
/// tried again. When a machine is slow it is slow at all sizes, so a surprise moves the others too, a little.
class CostCurve {
 public:
  /// Learns.
  CostCurve() = default;
  /// Given: seconds[n - 1] for n nodes, on with the last slope beyond (flat if it falls). Throws
  /// std::invalid_argument unless there is at least one value and all are finite and not negative.
  explicit CostCurve(std::vector<double> seconds) : given_(std::move(seconds)) {
    if (given_.empty()) throw std::invalid_argument("CostCurve: no values");
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (!(given_[i] >= 0) || !std::isfinite(given_[i]))
        throw std::invalid_argument("CostCurve: value " + detail::number(i) + " is " +
                                    detail::number(given_[i]) + ", must be finite and >= 0");
  }

  bool given() const { return !given_.empty(); }
  /// The largest size that was seen, 0 if none; without end for a given curve.
  std::int32_t known() const { return given() ? 1 << 24 : known_; }
  /// Allocates for sizes up to `nodes`.
  void reserve(std::int32_t nodes) {
    if (!given() && seen_.size() < static_cast<std::size_t>(nodes))
      seen_.resize(static_cast<std::size_t>(nodes));
  }

  /// A pass over `nodes` took `seconds`. Does nothing for a given curve. Cost: O(known()).
  void learn(std::int32_t nodes, double seconds) {
    if (given() || nodes < 1 || !(seconds >= 0) || !std::isfinite(seconds)) return;
    reserve(std::max(nodes, known_));  // which a curve that was moved from lacks
    Mean& mean = seen_[static_cast<std::size_t>(nodes - 1)];
    const double expected = (*this)(nodes);
    if (passes_ >= kTrusted && expected > 0) {
      seconds = std::clamp(seconds, expected / kOutlier, kOutlier * expected);
      for (Mean& other : seen_) {
        other.value *= 1 + kDrift * (seconds / expected - 1);
        other.weight *= kFade;
      }
    }
    mean.weight = std::min(mean.weight + 1, kMemory);
    if (mean.weight > 1 && mean.weight < kFew)
      mean.value = std::min(mean.value, seconds);  // a pass is late more often than early
    else
      mean.value += (seconds - mean.value) / mean.weight;
    known_ = std::max(known_, nodes);
    ++passes_;
    fit();
  }

  /// 0 as long as nothing was seen. Cost: O(1).
  double operator()(std::int32_t nodes) const {
    const auto n = static_cast<std::size_t>(std::max(1, nodes));
    if (given()) {
      if (n <= given_.size() || given_.size() == 1) return given_[std::min(n, given_.size()) - 1];
      const double last = given_.back(), slope = std::max(0.0, last - given_[given_.size() - 2]);
      return last + slope * static_cast<double>(n - given_.size());
    }
    const double line = intercept_ + slope_ * static_cast<double>(n);
    if (n > seen_.size()) return line;
    const Mean& mean = seen_[n - 1];
    return line + (mean.value - line) * mean.weight / (mean.weight + kTrusted);
  }

 private:
  static constexpr double kTrusted = 8, kOutlier = 1.25, kFew = 3.5, kMemory = 64, kDrift = 0.1,
                          kFade = 1 - 1.0 / 512;
  struct Mean {
    double value = 0, weight = 0;
  };

  /// Least squares over the means, each weighing as often as it was seen; never falling.
  void fit() {
    double w = 0, n = 0, t = 0, nn = 0, nt = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(known_); ++i) {
      const double size = static_cast<double>(i + 1), weight = seen_[i].weight, value = seen_[i].value;
      w += weight, n += weight * size, t += weight * value;
      nn += weight * size * size, nt += weight * size * value;
    }
    const double spread = w * nn - n * n;
    slope_ = spread > 1e-9 * w * nn ? std::max(0.0, (w * nt - n * t) / spread) : 0.0;
    intercept_ = (t - slope_ * n) / w;
    if (intercept_ < 0) intercept_ = 0, slope_ = nt / nn;  // a pass over no node takes no less than no time
  }

  std::vector<double> given_;  // by nodes - 1
  std::vector<Mean> seen_;     // likewise
  double intercept_ = 0, slope_ = 0, passes_ = 0;
  std::int32_t known_ = 0;
};

}  // namespace specula
