// SPDX-License-Identifier: MIT
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
  std::int32_t fewest = 0;       ///< nodes that draft calls must be able to reach, or none is made
  bool chosen = true;            ///< draft tokens are chosen, and may be left out; else they are drawn
  double most_lost = 1e300;      ///< cost that the round may lose if no draft token is accepted
  double catch_up = 0;           ///< cost of the draft's catch-up in its first call
  std::int32_t texts = 1;        ///< texts of the pass, each with a root
  bool shared = false;           ///< their calls are granted together, and their nodes chosen at the end
};

/// A draft call of one text among others.
struct DraftBid {
  DraftCall call = {};  ///< what the text's shape asks
  bool chosen = true;   ///< see RoundPrice
  double catch_up = 0;  ///< likewise
};

/// A CostModel over curves. Costs are in tokens: seconds times the pipeline's rate. The throughput over many
/// rounds is largest if each round maximises (expected tokens) - rate * (seconds), where rate is the
/// resulting throughput (Dinkelbach 1967). So a draft token pays if its acceptance probability is at least
/// the cost of verifying it. `nodes` is what the pass holds so far, T(nodes + 1) - T(nodes) the cost of one
/// more: nothing here depends on whose nodes these are, so the texts of a batch have one in common.
/// References its arguments; CostAware and BatchSpeculator make one per round.
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
  bool is_shared() const override { return price_.shared; }
  bool call_pays(const DraftCall& call) override {
    const DraftBid bid{call, price_.chosen, called_ > 0 ? 0.0 : price_.catch_up};
    return grants({&bid, 1}, call.nodes + price_.texts - 1) == 1;
  }
  /// How many of these bids, best first, are to be granted, in one draft pass: the number with the largest
  /// expected gain. A bid counts its draft tokens as far as they pay beside those of the bids before it.
  /// `nodes` is what the pass holds so far. Cost: O(bids).
  std::size_t grants(std::span<const DraftBid> bids, std::int32_t nodes) {
    const Granted granted = granted_from(bids, nodes, 0);
    called_ = granted.called;
    return granted.bids;
  }
  /// The same where the pass holds `others` and draft tokens of these probabilities, largest first, that may
  /// yet be left out: beside those that pay by themselves, or beside all, where more nodes cost less.
  std::size_t grants(std::span<const DraftBid> bids, std::span<const double> probabilities,
                     std::int32_t others) {
    const std::int32_t kept = nodes_that_pay(probabilities, others);
    const auto all = static_cast<std::int32_t>(probabilities.size());
    Granted granted = granted_from(bids, others + kept, 0);
    if (kept < all && others + all < price_.limit) {
      double loss = verify_cost(others + all) - verify_cost(others + kept);
      for (std::int32_t i = kept; i < all; ++i) loss -= probabilities[static_cast<std::size_t>(i)];
      if (const Granted more = granted_from(bids, others + all, -loss); more.value > granted.value)
        granted = more;
    }
    called_ = granted.called;
    return granted.bids;
  }
  bool node_pays(double reach, double confidence, std::int32_t nodes) override {
    estimator_->saw_drafted(confidence);
    return price_.shared || Outlook(*this, nodes, called_).value(reach * accept_probability(confidence)) >= 0;
  }
  std::int32_t best_count(std::span<const double> probabilities, std::int32_t nodes) const override {
    return price_.shared ? static_cast<std::int32_t>(probabilities.size())
                         : nodes_that_pay(probabilities, nodes);
  }
  /// best_count() of a pass that holds `nodes`, within limit(): optimal for any curve, convex or not, since
  /// the n nodes of largest probability are closed under ancestors and no n nodes have a larger sum.
  std::int32_t nodes_that_pay(std::span<const double> probabilities, std::int32_t nodes) const {
    const double verified = verify_cost(nodes);
    double gain = 0, best = 0;
    std::int32_t count = 0;
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
      const auto n = static_cast<std::int32_t>(i) + 1;
      if (nodes + n > price_.limit) break;
      gain += probabilities[i];
      const double value = gain - (verify_cost(nodes + n) - verified);
      if (value >= best) best = value, count = n;
    }
    return count;
  }

 private:
  static constexpr std::int32_t kAhead = 4;  // draft tokens that are looked ahead

  /// Looks ahead along a chain, since several draft tokens may cost no more than one.
  class Outlook {
   public:
    /// `called`: what this round's draft calls cost, that for the token included.
    Outlook(const CurveCostModel& cost_model, std::int32_t nodes, double called)
        : on_(cost_model.estimator_->first_probability()),
          most_(std::min(kAhead, cost_model.price_.limit - nodes)) {
      const double verified = cost_model.verify_cost(nodes), draft = cost_model.draft_cost(1);
      while (most_ > 0 && cost_model.exceeds(nodes + most_, called + (most_ - 1) * (*cost_model.draft_)(1)))
        --most_;
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
    double on_;
    std::int32_t most_;
    std::array<double, kAhead + 1> costs_{};
  };

  struct Granted {
    std::size_t bids = 0;
    double value = 0, called = 0;  // expected gain in tokens; cost of the round's calls
  };
  Granted granted_from(std::span<const DraftBid> bids, std::int32_t nodes, double value) const {
    Granted best{.called = called_};
    std::int32_t width = 0;
    double late = 0;
    for (std::size_t i = 0; i < bids.size(); ++i) {
      const DraftCall& call = bids[i].call;
      value += gain(bids[i], nodes);
      nodes += call.adds, width += call.width, late += bids[i].catch_up;
      const double cost = called_ + (*draft_)(width) + late;
      if (nodes > price_.limit || !affords(nodes, cost)) break;
      if (value - draft_cost(width) >= best.value) best = {i + 1, value - draft_cost(width), cost};
    }
    return best;
  }

  /// Whether a round over `nodes`, with draft calls of this cost, may lose more than it is allowed to.
  bool exceeds(std::int32_t nodes, double calls) const {
    return target_->at_most(nodes) - (*target_)(price_.texts) + calls > price_.most_lost;
  }

  /// Whether it may lose that, or if it goes on: more nodes may cost less.
  bool affords(std::int32_t nodes, double calls) const {
    if (nodes < price_.fewest) return !exceeds(price_.fewest, calls + (price_.fewest - nodes) * (*draft_)(1));
    for (std::int32_t more = 0; more < kAhead && nodes + more <= price_.limit; ++more)
      if (!exceeds(nodes + more, calls + more * (*draft_)(1))) return true;
    return false;
  }

  /// What the draft tokens of a call are expected to gain, in tokens, without the draft's cost.
  double gain(const DraftBid& bid, std::int32_t nodes) const {
    const double reach = bid.call.reach;
    if (bid.call.width == 1 && bid.call.adds == 1) {
      const Outlook outlook(*this, nodes, called_ + bid.catch_up + (*draft_)(1));
      if (!bid.chosen) return outlook.value(reach * estimator_->first_probability());
      double value = 0;
      if (estimator_->each_outlook([&](double probability, double share) {
            value += share * std::max(0.0, outlook.value(reach * probability));  // 0: it is left out
          }))
        return value;
    }
    return reach * estimator_->any_probability() - (verify_cost(nodes + bid.call.adds) - verify_cost(nodes));
  }

  AcceptanceEstimator* estimator_;
  const CostCurve *target_, *draft_;
  RoundPrice price_;
  double called_ = 0;  // cost of the calls that were allowed
};

}  // namespace specula
