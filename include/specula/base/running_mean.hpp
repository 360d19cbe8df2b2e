// A running mean of measured times that single outliers do not move.
#pragma once

#include <algorithm>
#include <utility>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Of the values seen of late, each replaced by the median of itself and the two before it: a pass that was
/// interrupted is not seen. The first two count as the lesser of them: what comes first is late the most
/// often.
struct RunningMean {
  static constexpr double kMemory = 64, kMost = 1.5;

  double value = 0, weight = 0;
  double last = 0, before = 0;  // as they were measured

  /// Whether an outlier would have been found out.
  bool known() const { return weight > 1.25; }
  /// What `measured` is to be taken for. To be called once for each.
  double filtered(double measured) {
    const double second = std::exchange(last, measured), third = std::exchange(before, second);
    if (weight < 1) return measured;
    if (weight < 2) return last = before = std::min(measured, second);
    return std::max(std::min(measured, second), std::min(third, std::max(measured, second)));
  }
  void add(double sample) {
    weight = std::min(weight + 1, kMemory);
    if (weight <= 3)
      value = sample;
    else
      value += (std::clamp(sample, value / kMost, kMost * value) - value) / weight;
  }
  /// The first one was no outlier.
  void believe() { weight = std::max(weight, 2.0); }
  void learn(double measured) { add(filtered(measured)); }
  void scale(double by) { value *= by, last *= by, before *= by; }
};

}  // namespace specula::detail
