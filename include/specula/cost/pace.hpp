// SPDX-License-Identifier: MIT
// The pace of the machine: seconds of passes as costs, whatever else loads it and however coarse its clock
// is.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Seconds per unit of cost, which follows the machine: one that others load is slow at all sizes, and a size
/// that costs more is slow alone. The unit is a plain pass, at first. Plain passes tell the pace; passes over
/// more nodes raise doubts, and a plain pass then decides. What varies from pass to pass, as where programs
/// take turns on a core, is noise: the more of it, the further off a pass must be to count as another pace. A
/// clock that advances in steps longer than a pass shows 0 or a step: by slack() a single reading may be off,
/// and only means tell. A clock that does not advance at all tells nothing: stands_still(). Cost: O(1) per
/// pass, no allocation.
class Pace {
 public:
  /// Takes the clock's reading of any pass; to be called first. False if the pace is not known yet, after
  /// which nothing can be learned from the pass.
  bool reads(double seconds) {
    if (seconds > 0) {
      shortest_ = shortest_ > 0 ? std::min(shortest_, seconds) : seconds;
      zeros_ = known() ? zeros_ * kFade : zeros_;
      still_ = 0;
    } else {
      zeros_ = zeros_ * kFade + 1;
      still_ = std::min(still_ + 1, kStill);
    }
    return known();
  }
  /// Whether the clock did not advance during the last passes, 32 or more.
  bool stands_still() const { return still_ >= kStill; }
  bool known() const { return pace_ > 0; }                       ///< whether a cost can be told
  double cost(double seconds) const { return seconds / pace_; }  ///< of a pass, in units; requires known()
  /// How far a single cost may be off by the clock's steps, in units; 0 if it advances during every pass.
  double slack() const { return zeros_ > kForgotten && known() ? shortest_ / pace_ : 0.0; }

  /// The first plain pass that the clock shows: this is the unit.
  void begin(double seconds) {
    pace_ = seconds;
    recent_.fill(seconds);
  }

  /// Learns from a plain pass that took `seconds`, of a size that costs between `least` and `most` units. The
  /// pace changes if the median of the last three does by a fifth. That of many texts, whose passes vary less
  /// and whose gains are smaller, is that median.
  void see_plain(double seconds, double least, double most, bool many) {
    const double shown = explains(seconds, least, most);
    if (slack() > 0) {
      doubts_ = 0;
      return agree(true);
    }
    see_noise(shown, least, most);
    if (doubts_ >= kRecent && !differ(shown, doubted_)) {  // all sizes agree
      pace_ = shown;
      recent_.fill(shown);
    }
    const bool agrees = !differ(shown, pace_);
    doubts_ = 0;
    std::shift_left(recent_.begin(), recent_.end(), 1);
    recent_.back() = shown;
    std::array<double, kRecent> sorted = recent_;
    std::nth_element(sorted.begin(), sorted.begin() + kRecent / 2, sorted.end());
    if (many || differ(sorted[kRecent / 2], pace_)) pace_ = sorted[kRecent / 2];
    agree(agrees);
  }
  /// The same of a pass over more nodes.
  void see_other(double seconds, double least, double most) {
    ++since_plain_;
    if (slack() > 0) return;
    const double shown = explains(seconds, least, most);
    see_noise(shown, least, most);
    doubts_ = differ(shown, pace_) ? doubts_ + 1 : 0;
    doubted_ = shown;
  }
  /// Whether a plain pass has to tell the pace: larger passes alone do not tell a machine that has become
  /// slow from nodes that cost more. So plain ones come in between: when three in a row do not take what they
  /// used to; else after 4 rounds, then ever more rarely while they agree with the pace, and until they do.
  bool asks() const { return since_plain_ >= check_after_ || doubts_ >= kRecent; }
  std::int32_t since_plain() const { return since_plain_; }  ///< passes over more nodes since a plain one

 private:
  static constexpr double kOff = 1.2;         // change of the machine's pace, where passes vary little
  static constexpr double kOffByNoise = 3;    // the same in mean variations, where they vary much
  static constexpr double kMostNoise = 0.7;   // of one pass: a phase of load begins but once
  static constexpr std::int32_t kRecent = 3;  // plain passes that show it, others in a row that may
  static constexpr std::int32_t kFirstCheck = 4, kLastCheck = 64;  // passes between plain ones
  static constexpr std::int32_t kStill = 32;  // passes that show that the clock does not advance
  static constexpr double kFade = 1 - 1.0 / 512, kForgotten = 0.5, kNoiseFade = 1 - 1.0 / 32;

  bool differ(double a, double b) const {
    const double off = std::max(kOff, std::exp(kOffByNoise * noise_));
    return a > off * b || b > off * a;
  }
  /// Learns how much the pace varies from one pass to the next, by sizes whose cost is known.
  void see_noise(double shown, double least, double most) {
    if (least < 0.999 * most) return;
    if (last_ > 0)
      noise_ += (1 - kNoiseFade) * (std::min(kMostNoise, std::abs(std::log(shown / last_))) - noise_);
    last_ = shown;
  }
  /// The pace nearest to the last that explains the pass.
  double explains(double seconds, double least, double most) const {
    const double shown = std::max(pace_, seconds / most);
    return least > 0 ? std::min(shown, seconds / least) : shown;
  }
  void agree(bool agrees) {
    if (since_plain_ == 0) return;
    if (!agrees) {
      check_after_ = std::min(kFirstCheck, since_plain_);
      return;
    }
    if (since_plain_ >= check_after_) check_after_ = std::clamp(2 * check_after_, kFirstCheck, kLastCheck);
    since_plain_ = 0;
  }

  std::array<double, kRecent> recent_{};  // pace by each of the last plain passes
  double pace_ = 0;                       // seconds per unit
  double noise_ = 0, last_ = 0;           // mean |log| of the ratio of two passes; the pace by the last one
  double doubted_ = 0;                    // the pace by the last pass over more
  std::int32_t doubts_ = 0;               // passes over more in a row whose pace differs
  std::int32_t since_plain_ = 0, check_after_ = kFirstCheck;
  double shortest_ = 0, zeros_ = 0;  // the clock's step, if it stood still: count of those passes, fading
  std::int32_t still_ = 0;           // passes in a row without an advance
};

}  // namespace specula
