// Acceptance rates of draft tokens, estimated from the rounds so far by the draft's confidence.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// How often draft tokens stayed, by the draft's confidence in them, and how confident the draft was.
class AcceptanceEstimator {
 public:
  static constexpr std::size_t kBins = 16;

  /// A draft token that was drafted, whether or not it then was proposed.
  void saw_drafted(double confidence) { drafted_[bin(confidence)] += 1; }
  /// A draft token whose parent stayed.
  void saw(double confidence, bool stayed) {
    const std::size_t b = bin(confidence);
    tried_[b] += 1;
    stayed_[b] += stayed ? 1 : 0;
  }
  /// A node that stayed and had draft tokens behind it.
  void saw_draft_tokens(bool first_stayed, bool any_stayed) {
    groups_ += 1;
    first_stayed_ += first_stayed ? 1 : 0;
    any_stayed_ += any_stayed ? 1 : 0;
  }
  /// Old rounds count less: what was seen is multiplied by `keep`.
  void fade(double keep) {
    for (std::size_t b = 0; b < kBins; ++b) drafted_[b] *= keep, tried_[b] *= keep, stayed_[b] *= keep;
    groups_ *= keep, first_stayed_ *= keep, any_stayed_ *= keep;
  }

  /// Nodes seen by saw_draft_tokens() that count.
  double groups() const { return groups_; }
  /// The same, so that no more than `groups` of those nodes count.
  void keep_at_most(double groups) {
    if (groups_ > groups) fade(groups / groups_);
  }

  /// Probability that a draft token of this confidence stays, given that its parent does.
  double accept_probability(double confidence) const { return probability_in(bin(confidence), confidence); }
  /// The probabilities of draft tokens that the draft may come up with next, and how often it does:
  /// visit(probability, share). False if it was not seen drafting yet.
  template <class Visit>
  bool each_outlook(Visit visit) const {
    double all = 0;
    for (const double count : drafted_) all += count;
    if (!(all > 0)) return false;
    for (std::size_t b = 0; b < kBins; ++b)
      if (drafted_[b] > 0) visit(probability_in(b, middle(b)), drafted_[b] / all);
    return true;
  }
  /// The same for the first draft token behind a node, not known yet; and for any of those behind it.
  double first_probability() const { return (first_stayed_ + kPrior * 0.5) / (groups_ + kPrior); }
  double any_probability() const { return (any_stayed_ + kPrior * 0.5) / (groups_ + kPrior); }

 private:
  static constexpr double kPrior = 4;  // draft tokens that the draft's own confidence counts as

  double probability_in(std::size_t b, double confidence) const {
    return (stayed_[b] + kPrior * confidence) / (tried_[b] + kPrior);
  }

  /// By log-odds, in steps of .75: confidences near 0 and near 1 are told apart.
  static std::size_t bin(double confidence) {
    const double c = confidence > 1e-6 ? std::min(confidence, 1 - 1e-6) : 1e-6;  // NaN too
    return static_cast<std::size_t>(std::clamp((std::log(c / (1 - c)) + 6) / 0.75, 0.0, kBins - 1.0));
  }
  static double middle(std::size_t b) {
    static constexpr std::array<double, kBins> kMiddles = {
        // 1 / (1 + exp(6 - .75 (b + .5)))
        .003593, .007577, .015906, .033086, .067547, .132964, .245085, .407333,
        .592667, .754915, .867036, .932453, .966914, .984094, .992423, .996407};
    return kMiddles[b];
  }

  std::array<double, kBins> drafted_{}, tried_{}, stayed_{};
  double groups_ = 0, first_stayed_ = 0, any_stayed_ = 0;
};

}  // namespace specula
