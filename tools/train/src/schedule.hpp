// SPDX-License-Identifier: MIT
// Progress of a training, and its learning rate schedule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <numbers>
#include <vector>

namespace specula_train {

/// A budget of steps, of minutes, or of both (the one used up first ends the training). With minutes the
/// schedule follows the clock, so that a busy machine makes fewer steps but still finishes the cosine.
struct Budget {
  std::int64_t steps = 0;  // 0: no limit
  double minutes = 0;      // 0: no limit

  double fraction(std::int64_t steps_done, double seconds_done) const {
    double used = 0;
    if (steps > 0) used = std::max(used, static_cast<double>(steps_done) / static_cast<double>(steps));
    if (minutes > 0) used = std::max(used, seconds_done / (60 * minutes));
    return std::min(used, 1.0);
  }

  /// The part of the budget that warms up: a fiftieth, or 30 steps where these are more (of a budget of
  /// minutes, as long as steps took so far), but at most a fifth.
  double warm_up(std::int64_t steps_done, double seconds_done) const {
    constexpr double kSteps = 30, kLeast = 0.02, kMost = 0.2;
    double step = steps > 0 ? 1 / static_cast<double>(steps) : 0;
    if (minutes > 0 && steps_done > 0)
      step = std::max(step, seconds_done / static_cast<double>(steps_done) / (60 * minutes));
    return std::clamp(kSteps * step, kLeast, kMost);
  }
};

/// Whether a training goes wrong: its smoothed loss has doubled since it was least.
class LossWatch {
 public:
  /// Takes the loss of a step; true where it has doubled, once until it has fallen below that again.
  bool add(double loss) {
    smoothed_ = count_++ == 0 ? loss : kKept * smoothed_ + (1 - kKept) * loss;
    if (count_ < kSettled) return false;
    least_ = std::min(least_, smoothed_);
    const bool doubled = smoothed_ > 2 * least_, news = doubled && !doubled_;
    doubled_ = doubled;
    return news;
  }
  double least() const { return least_; }        ///< the least smoothed loss
  double smoothed() const { return smoothed_; }  ///< the present one

 private:
  static constexpr double kKept = 0.9;
  static constexpr int kSettled = 5;
  double smoothed_ = 0, least_ = std::numeric_limits<double>::infinity();
  std::int64_t count_ = 0;
  bool doubled_ = false;
};

/// Linear warm-up over a part of the budget, then a cosine down to a tenth of the peak.
inline double learning_rate(double peak, double fraction, double warm_up) {
  if (fraction < warm_up) return peak * std::max(fraction, warm_up / 100) / warm_up;
  const double way = (fraction - warm_up) / (1 - warm_up);
  return peak * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * way)));
}

/// Adds up the time of steps. A step that took far longer than usual (the process was stopped, or the
/// machine slept) counts as four usual ones.
class StepClock {
 public:
  explicit StepClock(double seconds_before = 0) : seconds_(seconds_before) {}

  void add(double step_seconds) {
    const double usual = median();
    seconds_ += usual > 0 ? std::min(step_seconds, 4 * usual) : step_seconds;
    recent_.push_back(step_seconds);
    if (recent_.size() > 31) recent_.pop_front();
  }
  /// Of anything but steps, as it is.
  void add_other(double seconds) { seconds_ += seconds; }
  double seconds() const { return seconds_; }

  /// Of the last steps; 0 before the first.
  double median() const {
    if (recent_.empty()) return 0;
    std::vector<double> sorted(recent_.begin(), recent_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

 private:
  double seconds_;
  std::deque<double> recent_;
};

}  // namespace specula_train
