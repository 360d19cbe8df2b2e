// SPDX-License-Identifier: MIT
// Acceptance rate as a function of the draft's confidence, estimated from the rounds so far.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// Estimates the acceptance rate of draft tokens by the draft's confidence, and counts the confidences that
/// occur. Counts are weighted: see fade().
class AcceptanceEstimator {
 public:
  static constexpr std::size_t kBins = 16;  ///< bins of confidence, of equal width in log-odds

  /// Counts a drafted token, whether or not it was then proposed.
  void saw_drafted(double confidence) { drafted_[bin(confidence)] += 1; }
  /// Counts a draft token whose parent was accepted.
  void saw(double confidence, bool accepted) {
    const std::size_t b = bin(confidence);
    tried_[b] += 1;
    accepted_[b] += accepted ? 1 : 0;
  }
  /// Counts an accepted node that has children: whether its first child, and whether any, was accepted.
  void saw_draft_tokens(bool first_accepted, bool any_accepted) {
    groups_ += 1;
    first_accepted_ += first_accepted ? 1 : 0;
    any_accepted_ += any_accepted ? 1 : 0;
  }
  /// Multiplies all counts by `keep`, so that old rounds weigh less.
  void fade(double keep) {
    for (std::size_t b = 0; b < kBins; ++b) drafted_[b] *= keep, tried_[b] *= keep, accepted_[b] *= keep;
    groups_ *= keep, first_accepted_ *= keep, any_accepted_ *= keep;
  }

  /// Weighted count of the nodes given to saw_draft_tokens().
  double groups() const { return groups_; }
  /// Fades all counts until groups() is at most `groups`.
  void keep_at_most(double groups) {
    if (groups_ > groups) fade(groups / groups_);
  }

  /// Acceptance probability of a draft token of this confidence, given that its parent is accepted.
  double accept_probability(double confidence) const { return probability_in(bin(confidence), confidence); }
  /// A low estimate of accept_probability(): 0 while nothing was seen.
  double accept_at_least(double confidence) const {
    const std::size_t b = bin(confidence);
    return accepted_[b] / (tried_[b] + kDoubt);
  }
  /// The same of first_probability().
  double first_at_least() const { return first_accepted_ / (groups_ + kDoubt); }
  /// Calls visit(acceptance probability, share of the drafted tokens) for each confidence bin that occurred.
  /// Returns false if no token was drafted yet.
  template <class Visit>
  bool each_outlook(Visit visit) const {
    double all = 0;
    for (const double count : drafted_) all += count;
    if (!(all > 0)) return false;
    for (std::size_t b = 0; b < kBins; ++b)
      if (drafted_[b] > 0) visit(probability_in(b, middle(b)), drafted_[b] / all);
    return true;
  }
  /// Acceptance probability of the first child of an accepted node, before its confidence is known.
  double first_probability() const { return (first_accepted_ + kPrior * 0.5) / (groups_ + kPrior); }
  /// The same of any child.
  double any_probability() const { return (any_accepted_ + kPrior * 0.5) / (groups_ + kPrior); }

 private:
  static constexpr double kDoubt = 2;  // rejections that a low estimate adds to those seen
  static constexpr double kPrior = 4;  // weight of the draft's own confidence, in draft tokens

  double probability_in(std::size_t b, double confidence) const {
    return (accepted_[b] + kPrior * confidence) / (tried_[b] + kPrior);
  }

  /// Bins of width 0.75 in log-odds, which resolve confidences near 0 and near 1.
  static std::size_t bin(double confidence) {
    const double c = confidence > 1e-6 ? std::min(confidence, 1 - 1e-6) : 1e-6;  // NaN too
    return static_cast<std::size_t>(std::clamp((std::log(c / (1 - c)) + 6) / 0.75, 0.0, kBins - 1.0));
  }
  static double middle(std::size_t b) {
    static constexpr std::array<double, kBins> kMiddles = {
        // 1 / (1 + exp(6 - 0.75 (b + 0.5)))
        .003593, .007577, .015906, .033086, .067547, .132964, .245085, .407333,
        .592667, .754915, .867036, .932453, .966914, .984094, .992423, .996407};
    return kMiddles[b];
  }

  std::array<double, kBins> drafted_{}, tried_{}, accepted_{};
  double groups_ = 0, first_accepted_ = 0, any_accepted_ = 0;
};

}  // namespace specula
