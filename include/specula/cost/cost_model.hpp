// What draft tokens are worth and what they cost: how a proposal knows when to stop.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/cost/cost_curve.hpp"

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

/// The answers that a shape needs to leave out what does not pay. Costs are in tokens: what the text would
/// have grown by in the time. Over many rounds the tokens per second are largest if each round makes the most
/// of (tokens expected) - rate * (seconds), with the rate that is reached by doing so (Dinkelbach 1967); so a
/// draft token pays if its probability to stay is at least what its verification costs.
///
/// The answers depend on past rounds and on what is handed over, never on a uniform draw: a shape that asks
/// *before* it draws keeps the distribution. A view: CostAware makes one for each round.
class CostModel {
 public:
  /// Costs are rate * target(n) and rate * draft(n).
  CostModel(AcceptanceEstimator& estimator, const CostCurve& target, const CostCurve& draft, double rate)
      : estimator_(&estimator), target_(&target), draft_(&draft), rate_(rate) {}

  AcceptanceEstimator& estimator() const { return *estimator_; }
  /// Tokens that verifying `nodes` costs, and a pass of the draft over `nodes`.
  double verify_cost(std::int32_t nodes) const { return rate_ * (*target_)(nodes); }
  double draft_cost(std::int32_t nodes) const { return rate_ * (*draft_)(nodes); }

  /// Whether a drafted draft token that stays with probability `probability` pays as the next of a chain in a
  /// proposal of `nodes`, which may grow to `limit`.
  bool should_keep(double probability, std::int32_t nodes, std::int32_t limit) const {
    return Outlook(*this, nodes, limit).value(probability) >= 0;
  }
  /// Whether the draft's pass for it pays, behind a node that stays with probability `reach`. The draft token
  /// will be proposed whatever it is.
  bool should_draft(double reach, std::int32_t nodes, std::int32_t limit) const {
    return Outlook(*this, nodes, limit).value(reach * estimator_->first_probability()) >= draft_cost(1);
  }
  /// The same where it will be proposed only if it then pays.
  bool should_draft_to_choose(double reach, std::int32_t nodes, std::int32_t limit) const {
    const Outlook outlook(*this, nodes, limit);
    double value = 0;
    return !estimator_->each_outlook([&](double probability, double share) {
      value += share * std::max(0.0, outlook.value(reach * probability));
    }) || value >= draft_cost(1);
  }

  /// Half of what a node of a proposal of `limit` costs in the mean: draft tokens below that need not be
  /// looked at.
  double min_probability(std::int32_t limit) const {
    return limit > 1 ? (verify_cost(limit) - verify_cost(1)) / (2.0 * (limit - 1)) : 0.0;
  }
  /// How many draft tokens to add to a proposal of `nodes`. `probabilities`: for each to stay, largest first.
  std::int32_t best_count(std::span<const double> probabilities, std::int32_t nodes) const {
    const double verified = verify_cost(nodes);
    double gain = 0, best = 0;
    std::int32_t count = 0;
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
      const auto n = static_cast<std::int32_t>(i) + 1;
      gain += probabilities[i];
      const double value = gain - (verify_cost(nodes + n) - verified);
      if (value >= best) best = value, count = n;
    }
    return count;
  }

 private:
  /// Looks ahead along a chain, since several draft tokens may cost no more than one.
  class Outlook {
   public:
    Outlook(const CostModel& cost_model, std::int32_t nodes, std::int32_t limit)
        : on_(cost_model.estimator_->first_probability()), most_(std::min(kAhead, limit - nodes)) {
      const double verified = cost_model.verify_cost(nodes), draft = cost_model.draft_cost(1);
      for (std::int32_t more = 1; more <= most_; ++more)
        costs_[static_cast<std::size_t>(more)] =
            cost_model.verify_cost(nodes + more) - verified + draft * (more - 1);
    }
    /// The most that this draft token and those behind it are worth, less what they cost.
    double value(double probability) const {
      double gain = 0, best = -1e300;
      for (std::int32_t more = 1; more <= most_; ++more, probability *= on_) {
        gain += probability;
        best = std::max(best, gain - costs_[static_cast<std::size_t>(more)]);
      }
      return best;
    }

   private:
    static constexpr std::int32_t kAhead = 4;
    double on_;
    std::int32_t most_;
    std::array<double, kAhead + 1> costs_{};
  };

  AcceptanceEstimator* estimator_;
  const CostCurve *target_, *draft_;
  double rate_;
};

}  // namespace specula
