// SPDX-License-Identifier: MIT
// The budget of draft tokens of all texts of a pass: learns costs and acceptance rates, and bounds what
// drafting may lose.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "specula/base/rows.hpp"
#include "specula/base/stats.hpp"
#include "specula/cost/acceptance_estimator.hpp"
#include "specula/cost/balance.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/cost/curve_cost_model.hpp"
#include "specula/cost/draft_costs.hpp"
#include "specula/cost/pace.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

/// A round of `texts` texts whose passes are one, as BatchBudget learns from it.
struct BudgetRound {
  std::int32_t texts = 1;   ///< of the pass
  std::int32_t nodes = 1;   ///< likewise, roots included
  double tokens = 1;        ///< emitted
  Timing timing = {};       ///< of the passes
  DraftState drafted = {};  ///< of one text, before the round
  bool settled = true;      ///< the target's pass held nothing but the nodes, such as prompts
  double draft_cost = 0;    ///< of a shared budget: what learn_call() returned, in all
};

/// Plans each round (begin()) and learns from it (see(), learn()): T(n) of the target and of the draft's
/// calls, the draft's catch-up, acceptance rates by confidence, and the rate. One for all texts whose passes
/// are merged; CostAware has one for its own.
///
/// Three parts: Pace turns seconds into costs; DraftCosts knows or bounds what drafting costs; Balance bounds
/// what it may lose. So all losses together are about Balance::kAtFirst passes at first, and in the end
/// kShare of the tokens (kShareOfMany, of many texts) plus Balance::kLater passes. Not counted, since they
/// are not known before: what the first of all draft calls takes beyond what is assumed, and what the first
/// pass over a size takes beyond 1.5 times the cautious estimate: engines plan and allocate once for each
/// size, so the second pass is what the size costs. What is unknown is bounded, and what is odd is capped by
/// CostCurve::believe(), so that no measurement ends drafting for ever. Cost: O(nodes reserved) per round, no
/// allocation.
class BatchBudget {
 public:
  /// Curves that are not given are learned.
  explicit BatchBudget(CostCurve target = {}, CostCurve draft = {})
      : target_(std::move(target)), draft_(std::move(draft)) {}

  /// Allocates for proposals of `nodes` and draft calls over `draft_nodes`, of all of `texts` texts.
  void reserve(std::int32_t nodes, std::int32_t draft_nodes, std::int32_t texts = 1) {
    target_.reserve(nodes);
    draft_.reserve(draft_nodes, texts > 1);
    if (texts > 1) target_.make_straight();
  }
  /// Forgets all but learned costs.
  void forget() {
    estimator_ = {};
    balance_ = {};
  }

  /// Plans a round of `texts` texts, one of which has `least` to `most` nodes if it drafts, and returns the
  /// answers to their questions; the limit is `texts` for plain decoding. Of `price` the rate and the limit
  /// are set here, and most_lost is lowered.
  CurveCostModel begin(std::int32_t least, std::int32_t most, RoundPrice price) {
    const std::int32_t texts = price.texts, others = texts - 1;
    const CostCurve &target = target_costs(), &draft = draft_costs();
    shared_ = price.shared;
    const double plain = target(texts), bound = price.most_lost;
    // Of one text, the first draft token brings what it brought before, by a low estimate.
    const double sure = texts == 1 ? estimator_.first_at_least() : 0.0;
    price.rate = rate(texts), price.limit = texts;
    price.most_lost = std::min(bound, (balance_.left() + sure) * plain);
    std::int32_t size = 0;
    plan_ = plan(least, most, price, size);
    if (plan_ != Plan::measure) {
      // at first nothing is known of the costs; later, sizes grow by a factor of 2
      if (plan_ == Plan::attempt && balance_.drafted() == 0) price.most_lost = bound;
      const double room = price.most_lost + plain;
      const std::int32_t fewest =
          others + (plan_ == Plan::attempt ? size : least);  // less would teach nothing
      const auto all = static_cast<std::int32_t>(std::min(std::int64_t{texts} * most, std::int64_t{1} << 30));
      std::int32_t nodes =
          plan_ == Plan::attempt ? fewest : std::min(all, std::max(fewest, 2 * target.largest()));
      while (nodes >= fewest && target.at_most(nodes) > room) --nodes;
      if (nodes >= fewest) price.limit = plan_ == Plan::draft ? probed(fewest, nodes) : nodes;
    }
    if (plan_ == Plan::attempt && price.limit > texts) {
      price.rate = 0, price.fewest = price.limit;
      if (balance_.pauses()) estimator_.keep_at_most(kFew / 2);
    }
    return CurveCostModel(estimator_, target, draft, price);
  }

  /// Learns which draft tokens of a text were accepted in a round. To be called before learn().
  void see(const TokenTree& tree, const VerifyResult& result) {
    if (tree.size() > 1) estimator_.fade(kFade);
    for (std::size_t i = 0; i < result.accepted.size(); ++i) {
      const NodeId first = tree.first_child(result.accepted[i]);
      if (first == kNoParent) continue;
      const NodeId next = i + 1 < result.accepted.size() ? result.accepted[i + 1] : kNoParent;
      estimator_.saw_draft_tokens(next == first, next != kNoParent);
      tree.children(result.accepted[i], [&](NodeId c) {
        estimator_.saw(static_cast<double>(tree.confidence(c)), c == next);
        return true;
      });
    }
  }
  /// Learns from a round that begin() planned. Returns what it cost, in the curves' unit.
  double learn(const BudgetRound& round) {
    const double pass = learn_pass(round), draft = shared_ ? round.draft_cost : learn_draft(round);
    const double plain = target_costs()(round.texts), tokens = round.tokens / round.texts;
    const bool drafted = round.nodes > round.texts || round.timing.draft.calls > 0;
    if (plain > 0 && balance_.add(tokens, (pass + draft) / plain, round.texts > 1 ? kShareOfMany : kShare,
                                  drafted, plan_ == Plan::attempt, plan_ == Plan::measure))
      estimator_.keep_at_most(kFew);
    return pass + draft;
  }
  /// Learns from a draft pass over `width` nodes and `late` tokens that their texts had missed; returns what
  /// it cost, in the curves' unit.
  double learn_call(std::int32_t width, std::int32_t late, double seconds) {
    if (!draft_.calls().given() && stands_still()) return draft_costs()(width);
    if (!draft_.calls().given() && !pace_.reads(seconds)) return 0;
    return draft_.learn_pass(width, late, pace_.known() ? pace_.cost(seconds) : 0.0, target_(texts_),
                             pace_.slack());
  }
  /// Learns T(n) and the balance, from a round of one text whose draft tokens came from elsewhere.
  void learn_other(const BudgetRound& round) {
    const double pass = learn_pass(round), plain = target_costs()(1);
    // A pass that seems to take less than a plain one does not: else noise would pay for losses.
    if (plain > 0) balance_.add_other(round.tokens, std::max(pass, plain) / plain, kShare);
  }
  /// Whether the balance covers such a round over `nodes`, of which at least `tokens` are to be expected.
  bool covers(std::int32_t nodes, double tokens) const {
    return target_costs().at_most(nodes) <= (tokens + balance_.left_for_others()) * target_costs()(1);
  }

  /// The limit of a round that may have `most` nodes. Now and then the largest number of whole tiles that
  /// fits in the last round's size and was never measured: it may cost less than a size below it.
  std::int32_t probed(std::int32_t fewest, std::int32_t most) {
    if (target_.given() || ++since_probe_ < probe_after_ || last_nodes_ < fewest) return most;
    since_probe_ = 0, probe_after_ = std::min(2 * probe_after_, kLastProbe);
    for (std::int32_t nodes = last_nodes_ / kTile * kTile; nodes >= fewest; nodes -= kTile)
      if (nodes <= most && !target_.knows(nodes)) return nodes;
    return most;
  }

  /// By nodes, in no fixed unit.
  const CostCurve& target_costs() const { return stands_still() ? default_target() : target_; }
  /// Of a call, in the same unit.
  const CostCurve& draft_costs() const {
    return stands_still() && !draft_.calls().given() ? default_draft() : draft_.calls();
  }
  bool measures() const { return plan_ == Plan::measure; }  ///< whether the round is plain on purpose
  const AcceptanceEstimator& estimator() const { return estimator_; }  ///< acceptance rates by confidence
  double balance() const { return balance_.left(); }  ///< what drafting may still lose, in plain passes
  /// Throughput of the recent rounds in tokens per unit of the curves, at least that of plain decoding of
  /// `texts` texts; 0 before the first measurement.
  double rate(std::int32_t texts = 1) const {
    const double plain = target_costs()(texts);
    return plain > 0 ? balance_.rate() * texts / plain : 0.0;
  }
  /// Cost of a draft's catch-up.
  double catch_up(const DraftState& text) const {
    const double dared = std::clamp(kDare * balance_.tokens(), kLeastDare, kMostDare);
    return draft_.catch_up(text, dared + balance_.gained_by_others());
  }
  /// Whether the clock does not advance during passes: costs are the default ones then.
  bool stands_still() const { return pace_.stands_still() && !target_.given(); }

 private:
  /// What a round is for.
  enum class Plan : std::uint8_t {
    measure,  // a plain pass, the baseline of every gain
    attempt,  // draft tokens although the estimates are against them or few: only this teaches about them
    draft     // as the estimates say; idle if they are against it
  };

  static constexpr double kShare = 0.01, kShareOfMany = 0.005;  // of a plain pass, per token of a text
  static constexpr double kFade = 1 - 1.0 / 64;                 // factor per round on earlier ones
  /// Plain passes that the first catch-up after a pause may cost: per token so far, which is what a draft of
  /// a tenth of a pass is guessed to take for each, and bounds. Beside it, what others gained: a text that
  /// began with copies would else never be drafted.
  static constexpr double kDare = 0.025, kLeastDare = 0.25, kMostDare = 4;
  static constexpr double kFew = 8;        // draft tokens for a usable estimate; half is kept after a pause
  static constexpr double kMargin = 1.05;  // smallest speedup to look for
  static constexpr double kEnough = 0.1;   // (3 standard deviations of 10%)^2: the variation of passes
  static constexpr double kFirstCall = 0.25;  // passes that a draft call is taken to cost before it is known
  static constexpr double kPhase = 1.25;      // what a node more may cost, of an average one
  static constexpr double kChecks = 100;      // rounds of many texts until a plain one, for each unit of gain
  static constexpr std::int32_t kFirstChecks = 4;                    // at least
  static constexpr std::int32_t kTile = 4;                           // rows
  static constexpr std::int32_t kFirstProbe = 16, kLastProbe = 512;  // rounds between two

  /// Where no clock tells: a node more takes a tenth of a pass, a draft call a quarter.
  static const CostCurve& default_target() {
    static const CostCurve curve({1, 1.1});
    return curve;
  }
  static const CostCurve& default_draft() {
    static const CostCurve curve({kFirstCall});
    return curve;
  }

  Plan plan(std::int32_t least, std::int32_t most, const RoundPrice& price, std::int32_t& size) {
    const CostCurve& target = target_costs();
    const std::int32_t texts = price.texts;
    if (!target.knows(texts) && (texts == 1 || target.largest() < texts)) return Plan::measure;
    size = least;
    // the smaller the gain, the better the baseline must be known
    const double gain = price.rate * target(texts) / texts - 1;
    const bool long_ago = shared_ && pace_.since_plain() >= std::max<double>(kFirstChecks, kChecks * gain);
    if (!target.given() && (long_ago || pace_.asks())) return Plan::measure;
    if (texts == 1 && gain > 0 &&
        target.weight(1) < std::min({std::max(CostCurve::kSure, kEnough / (gain * gain)), CostCurve::kMemory,
                                     balance_.drafted()}))
      return Plan::measure;
    if (balance_.pauses()) {
      if (!balance_.tries()) return Plan::draft;
    } else if (estimator_.groups() >= kFew || expects_gain(least, most, price)) {
      return Plan::draft;
    }
    size = promising_size(least, most, texts);
    return size > 0 ? Plan::attempt : Plan::draft;
  }
  bool expects_gain(std::int32_t least, std::int32_t most, RoundPrice price) {
    price.limit = price.texts - 1 + most;
    return CurveCostModel(estimator_, target_costs(), draft_costs(), price).call_pays({.adds = least - 1});
  }
  /// The smallest proposal that would pay if all of it were accepted, if one text had it or each; 0 if there
  /// is none.
  std::int32_t promising_size(std::int32_t least, std::int32_t most, std::int32_t texts) const {
    const CostCurve &target = target_costs(), &draft = draft_costs();
    const double plain = target(texts);
    const auto promises = [&](std::int32_t n, std::int32_t of) {
      const double cost = target(texts + of * (n - 1)) + (n - 1) * draft(of);
      return kMargin * (cost - plain * (texts - of) / texts) < n * plain * of / texts;
    };
    std::int32_t first = 0;
    for (std::int32_t n = least; n <= most; ++n) {
      if (!promises(n, 1) && !promises(n, texts)) continue;
      // Products of kTile rows may cost less than those of fewer, so that is tried first where rows are dear.
      if (n == least || (texts - 1 + n) % kTile == 0) return n;
      if (first == 0) first = n;
    }
    return first;
  }

  /// Learns T(nodes) and returns the cost of this pass. Leaves out passes that held more than the nodes, and
  /// one over one node per text after one over several, for which engines plan anew.
  double learn_pass(const BudgetRound& round) {
    const std::int32_t nodes = round.nodes, texts = round.texts;
    const double seconds = round.timing.target.seconds;
    const bool drafts = nodes > texts, settled = drafts || last_nodes_ <= texts;
    last_nodes_ = nodes, texts_ = texts;
    if (target_.given() || !round.settled) return target_costs()(nodes);
    const bool known_pace = pace_.reads(seconds);
    if (stands_still()) return target_costs()(nodes);
    if (!known_pace) {
      if (!(seconds > 0)) return target_(nodes);
      pace_.begin(seconds);
    }
    const double plain = target_(texts);
    auto [least, most] = target_.bounds(nodes);
    // of a new size: anything above may be an interruption
    if (drafts && plain > 0) most = std::max(least, std::min(most, kPhase * nodes / texts * plain));
    if (drafts)
      pace_.see_other(seconds, least, most);
    else
      pace_.see_plain(seconds, least, most, shared_);
    const double cost = pace_.cost(seconds);
    if (!settled) return target_.capped(nodes, cost, pace_.slack());
    const double believed =
        target_.believe(nodes, cost, drafts && plain > 0 ? most : CostCurve::kNoBound, pace_.slack());
    draft_.assume(kFirstCall * target_(1));
    return believed;
  }

  /// Learns the draft's costs, and returns what it took in this round.
  double learn_draft(const BudgetRound& round) {
    const Usage& usage = round.timing.draft;
    if (usage.calls < 1) return 0;
    if (!draft_.calls().given()) {
      if (stands_still()) return static_cast<double>(usage.calls) * draft_costs()(1);
      if (!pace_.known()) return 0;
    }
    return draft_.learn_round(usage, round.drafted, pace_.known() ? pace_.cost(usage.seconds) : 0.0,
                              target_(1), pace_.slack());
  }

  CostCurve target_;
  DraftCosts draft_;
  Pace pace_;
  Balance balance_;
  AcceptanceEstimator estimator_;
  std::int32_t last_nodes_ = 1, texts_ = 1;                   // of the last pass
  std::int32_t since_probe_ = 0, probe_after_ = kFirstProbe;  // rounds
  Plan plan_ = Plan::measure;
  bool shared_ = false;
};

}  // namespace specula
