// Dynamic speculation length: whether draft tokens pay, by cost curves and estimated acceptance rates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "specula/cost/acceptance_estimator.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/policy/propose_context.hpp"

namespace specula {

/// A round as CurveCostModel is given it. Costs are in the curves' unit.
struct RoundPrice {
  double rate = 0;               ///< tokens per unit of cost; 0: nothing costs anything
  std::int32_t limit = 1 << 24;  ///< nodes of the pass, all roots included
  bool chosen = true;            ///< draft tokens are chosen, and may be left out; else they are drawn
  double most_lost = 1e300;      ///< cost that the round may lose if no draft token is accepted
  double catch_up = 0;           ///< cost of the draft's catch-up in its first call
};

/// A CostModel over curves. Costs are in tokens: seconds times the pipeline's rate. The throughput over many
/// rounds is largest if each round maximises (expected tokens) - rate * (seconds), where rate is the
/// resulting throughput (Dinkelbach 1967). So a draft token pays if its acceptance probability is at least
/// the cost of verifying it. `nodes` is what the pass holds so far, T(nodes + 1) - T(nodes) the cost of one
/// more: nothing here depends on whose nodes these are. References its arguments; CostAware makes one per
/// round.
class CurveCostModel final : public CostModel {
 public:
  /// Costs are rate * target(n) and rate * draft(n).
  CurveCostModel(AcceptanceEstimator& estimator, const CostCurve& target, const CostCurve& draft,
                 const RoundPrice& price)
      : estimator_(&estimator), target_(&target), draft_(&draft), price_(price) {}

  /// Cost in tokens of verifying `nodes`.
  double verify_cost(std::int32_t nodes) const { return price_.rate * (*target_)(nodes); }
  /// Cost in tokens of one draft pass over `nodes`.
  double draft_cost(std::int32_t nodes) const { return price_.rate * (*draft_)(nodes); }
  std::int32_t limit() const { return price_.limit; }  ///< nodes of the pass at most

  double accept_probability(double confidence) const override {
    return estimator_->accept_probability(confidence);
  }
  bool call_pays(double reach, std::int32_t width, std::int32_t adds, std::int32_t nodes) override {
    const double called = called_ + (*draft_)(width) + (called_ > 0 ? 0.0 : price_.catch_up);
    if (nodes + adds > price_.limit || !gains(reach, width, adds, nodes) ||
        target_->at_most(nodes + adds) - (*target_)(1) + called > price_.most_lost)
      return false;
    called_ = called;
    return true;
  }
  bool node_pays(double reach, double confidence, std::int32_t nodes) override {
    estimator_->saw_drafted(confidence);
    return Outlook(*this, nodes).value(reach * accept_probability(confidence)) >= 0;
  }
  std::int32_t best_count(std::span<const double> probabilities, std::int32_t nodes) const override {
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
    Outlook(const CurveCostModel& cost_model, std::int32_t nodes)
        : on_(cost_model.estimator_->first_probability()),
          most_(std::min(kAhead, cost_model.price_.limit - nodes)) {
      const double verified = cost_model.verify_cost(nodes), draft = cost_model.draft_cost(1);
      for (std::int32_t more = 1; more <= most_; ++more)
        costs_[static_cast<std::size_t>(more)] =
            cost_model.verify_cost(nodes + more) - verified + draft * (more - 1);
    }
    /// The largest net gain, in tokens, of this draft token and those after it.
    double value(double probability) const {
      double gain = 0, best = std::numeric_limits<double>::lowest();
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

  bool gains(double reach, std::int32_t width, std::int32_t adds, std::int32_t nodes) const {
    if (price_.chosen && width == 1 && adds == 1) {
      const Outlook outlook(*this, nodes);
      double value = 0;
      if (estimator_->each_outlook([&](double probability, double share) {
            value += share * std::max(0.0, outlook.value(reach * probability));  // 0: it is left out
          }))
        return value >= draft_cost(1);
    } else if (width == 1 && adds == 1) {
      return Outlook(*this, nodes).value(reach * estimator_->first_probability()) >= draft_cost(1);
    }
    return reach * estimator_->any_probability() >=
           draft_cost(width) + verify_cost(nodes + adds) - verify_cost(nodes);
  }

  AcceptanceEstimator* estimator_;
  const CostCurve *target_, *draft_;
  RoundPrice price_;
  double called_ = 0;  // cost of the calls that were allowed
};

}  // namespace specula
