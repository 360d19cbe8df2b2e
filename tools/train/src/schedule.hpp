// Progress of a training, and its learning rate schedule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
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
};

/// Linear warm-up, then a cosine down to a tenth of the peak.
inline double learning_rate(double peak, double fraction, double warm_up = 0.02) {
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
