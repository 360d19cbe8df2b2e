// Dynamic speculation length: whether draft tokens pay, by cost curves and estimated acceptance rates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "specula/cost/acceptance_estimator.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/propose_context.hpp"

namespace specula {

/// A CostModel over curves. Costs are in tokens: seconds times the pipeline's rate. The throughput over many
/// rounds is largest if each round maximises (expected tokens) - rate * (seconds), where rate is the
/// resulting throughput (Dinkelbach 1967). So a draft token pays if its acceptance probability is at least
/// the cost of verifying it. References its arguments; CostAware makes one per round.
class CurveCostModel final : public CostModel {
 public:
  /// Costs are rate * target(n) and rate * draft(n).
  CurveCostModel(AcceptanceEstimator& estimator, const CostCurve& target, const CostCurve& draft, double rate)
      : estimator_(&estimator), target_(&target), draft_(&draft), rate_(rate) {}

  /// Cost in tokens of verifying `nodes`.
  double verify_cost(std::int32_t nodes) const { return rate_ * (*target_)(nodes); }
  /// Cost in tokens of one draft pass over `nodes`.
  double draft_cost(std::int32_t nodes) const { return rate_ * (*draft_)(nodes); }

  double accept_probability(double confidence) const override {
    return estimator_->accept_probability(confidence);
  }
  bool should_draft(double reach, std::int32_t nodes, std::int32_t limit) const override {
    return Outlook(*this, nodes, limit).value(reach * estimator_->first_probability()) >= draft_cost(1);
  }
  bool should_draft_to_choose(double reach, std::int32_t nodes, std::int32_t limit) const override {
    const Outlook outlook(*this, nodes, limit);
    double value = 0;
    return !estimator_->each_outlook([&](double probability, double share) {
      value += share * std::max(0.0, outlook.value(reach * probability));
    }) || value >= draft_cost(1);
  }
  bool should_draft_level(double reach, std::int32_t width, std::int32_t nodes,
                          std::int32_t more) const override {
    return reach * estimator_->any_probability() >=
           draft_cost(width) + verify_cost(nodes + more) - verify_cost(nodes);
  }
  bool should_keep(double probability, std::int32_t nodes, std::int32_t limit) const override {
    return Outlook(*this, nodes, limit).value(probability) >= 0;
  }
  void saw_drafted(double confidence) override { estimator_->saw_drafted(confidence); }
  /// Half of the average cost per draft token of a proposal of `limit` nodes.
  double min_probability(std::int32_t limit) const override {
    return limit > 1 ? (verify_cost(limit) - verify_cost(1)) / (2.0 * (limit - 1)) : 0.0;
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
    Outlook(const CurveCostModel& cost_model, std::int32_t nodes, std::int32_t limit)
        : on_(cost_model.estimator_->first_probability()), most_(std::min(kAhead, limit - nodes)) {
      const double verified = cost_model.verify_cost(nodes), draft = cost_model.draft_cost(1);
      for (std::int32_t more = 1; more <= most_; ++more)
        costs_[static_cast<std::size_t>(more)] =
            cost_model.verify_cost(nodes + more) - verified + draft * (more - 1);
    }
    /// The largest net gain, in tokens, of this draft token and those after it.
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
