// Running mean of measured times with a median filter against single outliers.
#pragma once

#include <algorithm>
#include <utility>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// The mean of recent values, each replaced by the median of itself and the two before it, so that one
/// interrupted pass has no effect. The first two both count as the smaller of them, since first passes are
/// the slowest most often.
struct RunningMean {
  static constexpr double kMemory = 64, kMost = 1.5;

  double value = 0, weight = 0;
  double last = 0, before = 0;  // unfiltered

  /// Whether there are enough values to detect an outlier.
  bool known() const { return weight > 1.25; }
  /// The value that `measured` counts as. The caller must call this once per measurement.
  double filtered(double measured) {
    const double second = std::exchange(last, measured), third = std::exchange(before, second);
    if (weight < 1) return measured;
    if (weight < 2) return last = before = std::min(measured, second);
    return std::max(std::min(measured, second), std::min(third, std::max(measured, second)));
  }
  void add(double sample) {
    weight = std::min(weight + 1, kMemory);
    if (weight <= 3 || !(value > 0))  // bounds relative to 0 would keep the value at 0
      value = sample;
    else
      value += (std::clamp(sample, value / kMost, kMost * value) - value) / weight;
  }
  /// Declares that the first value was no outlier.
  void believe() { weight = std::max(weight, 2.0); }
  void learn(double measured) { add(filtered(measured)); }
  void scale(double by) { value *= by, last *= by, before *= by; }
};

}  // namespace specula::detail
