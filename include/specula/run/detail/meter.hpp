// SPDX-License-Identifier: MIT
// What the models of a pipeline took in a round.
#pragma once

#include <array>
#include <cstddef>

#include "specula/base/stats.hpp"
#include "specula/policy/optional_members.hpp"

namespace specula::detail {

/// Drafters of which Stats has figures: a stack's members, else one.
template <class D>
inline constexpr std::size_t drafter_count = [] {
  if constexpr (HasMembers<D>) return D::kMembers;
  return std::size_t{1};
}();

/// The usage of each so far; nothing of a drafter that does not report it.
template <class D>
std::array<Usage, drafter_count<D>> usage_of(const D& drafter) noexcept {
  std::array<Usage, drafter_count<D>> all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if constexpr (HasMembers<D>)
      all[i] = drafter.usage(i);
    else if constexpr (ReportsUsage<D>)
      all[i] = drafter.usage();
  }
  return all;
}

/// Adds the models' usage of a round to the statistics, also when the round throws.
template <class V, class D>
class Meter {
 public:
  Meter(const V& verifier, const D& drafter, Stats& sums)
      : verifier_(verifier),
        drafter_(drafter),
        sums_(sums),
        target_(verifier.usage()),
        drafters_(usage_of(drafter)) {}
  ~Meter() {
    if (!booked_) book();
  }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Once, at the end of the round; returns what the round took.
  Timing book() noexcept {
    Timing round{verifier_.usage() - target_, {}};
    sums_.target += round.target;
    const std::array<Usage, drafter_count<D>> now = usage_of(drafter_);
    for (std::size_t i = 0; i < now.size(); ++i) {
      const Usage spent = now[i] - drafters_[i];
      sums_.drafters[i] += spent;
      round.draft += spent;
    }
    sums_.draft += round.draft;
    booked_ = true;
    return round;
  }

 private:
  const V& verifier_;
  const D& drafter_;
  Stats& sums_;
  Usage target_;
  std::array<Usage, drafter_count<D>> drafters_;
  bool booked_ = false;
};

}  // namespace specula::detail
