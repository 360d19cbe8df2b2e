// Cost curve T(n): the time of a model's forward pass over n nodes, given or learned from measured passes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "specula/base/compiler_options.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/running_mean.hpp"

namespace specula {

/// Seconds (or any other unit) by number of nodes. A learned curve is a least-squares line through the
/// running means of the sizes seen; at each such size it is a mix of the line and that mean, by how often the
/// size was seen recently. A single slow pass has no effect, since a thread may have been interrupted. A size
/// that took much longer than the line predicts counts from its second pass on. A slow machine is slow at all
/// sizes, so a lasting deviation at one size also scales the others; a large one reduces their weight, so
/// that they follow the line.
class CostCurve {
 public:
  /// A learned curve.
  CostCurve() = default;
  /// A given curve: seconds[n - 1] for n nodes, extrapolated with the last slope (flat if it falls). Throws
  /// std::invalid_argument unless there is at least one value and all are finite and not negative.
  explicit CostCurve(std::vector<double> seconds) : given_(std::move(seconds)) {
    if (given_.empty()) throw std::invalid_argument("CostCurve: no values");
    for (std::size_t i = 0; i < given_.size(); ++i)
      if (!(given_[i] >= 0) || !std::isfinite(given_[i]))
        throw std::invalid_argument("CostCurve: value " + detail::number(i) + " is " +
                                    detail::number(given_[i]) + ", must be finite and >= 0");
  }

  bool given() const { return !given_.empty(); }  ///< Whether the curve was given, not learned.
  /// The largest size known, 0 if none; 2^24 for a given curve.
  std::int32_t known() const { return given() ? 1 << 24 : known_; }
  /// Whether `nodes` was seen often enough to detect an interrupted pass.
  bool sure(std::int32_t nodes) const {
    const auto n = static_cast<std::size_t>(std::max(1, nodes));
    return given() || (n <= seen_.size() && seen_[n - 1].known());
  }
  /// Allocates for sizes up to `nodes`.
  void reserve(std::int32_t nodes) {
    if (!given() && seen_.size() < static_cast<std::size_t>(nodes))
      seen_.resize(static_cast<std::size_t>(nodes));
  }

  /// Records that a pass over `nodes` took `seconds`. Does nothing for a given curve. Cost: O(known()).
  void learn(std::int32_t nodes, double seconds) {
    if (given() || nodes < 1 || !(seconds >= 0) || !std::isfinite(seconds)) return;
    reserve(std::max(nodes, seen_up_to_));  // a curve that was moved from lacks seen_up_to_ elements
    detail::RunningMean& mean = seen_[static_cast<std::size_t>(nodes - 1)];
    const double sample = mean.filtered(seconds), expected = (*this)(nodes);
    if (mean.weight >= kSure && mean.value > 0) {
      pace_ += (std::clamp(sample / mean.value, 1 / kOutlier, kOutlier) - 1 - pace_) / kSure;
      const double drift = pace_ - std::clamp(pace_, -kJitter, kJitter);
      for (detail::RunningMean& other : seen_) {
        other.scale(1 + kDrift * drift);
        // Old values weigh less; after a change of the machine they are forgotten faster.
        other.weight = std::abs(pace_) < kChanged
                           ? std::max(kFade * other.weight, std::min(other.weight, kLeast))
                           : kDoubt * other.weight;
      }
    }
    mean.add(sample);
    if (sample <= kLikely * expected) mean.believe();
    if (mean.known() || known_ == 0) known_ = std::max(known_, nodes);
    seen_up_to_ = std::max(seen_up_to_, nodes);
    fit();
  }

  /// The middle of two neighbouring known sizes of which the larger takes at least 1.5 times as long: the
  /// curve has a step between them. 0 if there is none. Cost: O(known()).
  std::int32_t step() const {
    std::int32_t below = 1;
    for (std::int32_t n = 2; n <= known_ && !given(); ++n) {
      if (!seen_[static_cast<std::size_t>(n - 1)].known()) continue;
      if (n - below > 1 && (*this)(n) >= 1.5 * (*this)(below)) return (below + n) / 2;
      below = n;
    }
    return 0;
  }

  /// T(nodes); 0 while no pass was recorded. Cost: O(1).
  double operator()(std::int32_t nodes) const {
    const auto n = static_cast<std::size_t>(std::max(1, nodes));
    if (given()) {
      if (n <= given_.size() || given_.size() == 1) return given_[std::min(n, given_.size()) - 1];
      const double last = given_.back(), slope = std::max(0.0, last - given_[given_.size() - 2]);
      return last + slope * static_cast<double>(n - given_.size());
    }
    const double line = intercept_ + slope_ * static_cast<double>(n);
    if (n > seen_.size()) return line;
    const detail::RunningMean& mean = seen_[n - 1];
    return mean.known() ? line + (mean.value - line) * mean.weight / (mean.weight + kTrusted) : line;
  }

 private:
  static constexpr double kTrusted = 1, kSure = 8, kOutlier = 1.25, kDrift = 0.1, kLikely = 1.5,
                          kJitter = 0.06, kFade = 1 - 1.0 / 4096, kDoubt = 0.95, kChanged = 0.08, kLeast = 2;

  /// Fits the line: least squares over the means, weighted by their counts, with a slope of at least 0.
  void fit() {
    double w = 0, n = 0, t = 0, nn = 0, nt = 0;
    bool lone = true;  // no size is known yet: use sizes seen once
    for (const detail::RunningMean& mean : seen_) lone = lone && !mean.known();
    for (std::size_t i = 0; i < static_cast<std::size_t>(seen_up_to_); ++i) {
      const double size = static_cast<double>(i + 1), value = seen_[i].value;
      const double weight = seen_[i].known() || lone ? seen_[i].weight : 0.0;
      w += weight, n += weight * size, t += weight * value;
      nn += weight * size * size, nt += weight * size * value;
    }
    const double spread = w * nn - n * n;
    slope_ = spread > 1e-9 * w * nn ? std::max(0.0, (w * nt - n * t) / spread) : 0.0;
    intercept_ = (t - slope_ * n) / w;
    if (intercept_ < 0) intercept_ = 0, slope_ = nt / nn;  // refit through the origin: no time is negative
  }

  std::vector<double> given_;              // by nodes - 1
  std::vector<detail::RunningMean> seen_;  // likewise
  double intercept_ = 0, slope_ = 0, pace_ = 0;
  std::int32_t known_ = 0, seen_up_to_ = 0;
};

}  // namespace specula
