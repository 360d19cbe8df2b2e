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
#include "specula/cost/cost_curve.hpp"
#include "specula/cost/curve_cost_model.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

/// What the budget has to know of a text's draft.
struct DraftState {
  double missed = 0;       ///< tokens since the draft's last call
  double context = 0;      ///< tokens of the text
  bool first_call = true;  ///< whether the next call is the text's first, which reads the prompt

  /// After a round of `tokens` tokens, with this many draft calls.
  void add_round(double tokens, std::int64_t calls) {
    missed = calls > 0 ? 0.0 : missed + tokens;
    first_call = first_call && calls == 0;
  }
};

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
/// The balance counts gains and losses of drafting against plain decoding, in plain passes of the target,
/// over one node per text, which give a token each. Each such token adds kShare of its part of a pass; a
/// round that drafted also adds its tokens and subtracts its cost, as measured. A round is allowed if the
/// balance covers its largest loss, so all losses together are about kShare of the tokens plus kAtFirst; what
/// the draft's very first call takes beyond one pass is not known before and not counted, nor is what the
/// first pass over a size takes beyond 1.5 times the cautious estimate: engines plan and allocate once for
/// each size, over a network for several passes' time, so the second pass is what the size costs. Gains count
/// up to kMax. Source: Wu, Shariff, Lattimore and Szepesvari 2016 (Conservative Bandits), with plain decoding
/// as the default arm.
///
/// Learned costs are relative to the machine's pace, which changes if the median of the last plain passes
/// does by a fifth: a loaded machine is slow at all sizes. If others take a fifth more or less than they did,
/// a plain pass tells whether it is the machine. Cost: O(nodes reserved) per round, no allocation.
class BatchBudget {
 public:
  /// Curves that are not given are learned.
  explicit BatchBudget(CostCurve target = {}, CostCurve draft = {})
      : target_(std::move(target)), draft_(std::move(draft)) {}

  /// Allocates for proposals of `nodes` and draft calls over `draft_nodes`, of all of `texts` texts.
  void reserve(std::int32_t nodes, std::int32_t draft_nodes, std::int32_t texts = 1) {
    target_.reserve(nodes);
    draft_.reserve(draft_nodes);
    if (texts > 1) target_.make_straight(), draft_.make_straight();
  }
  /// Forgets all but learned costs.
  void forget() {
    estimator_ = {};
    balance_ = highest_ = kAtFirst;
    tokens_ = passes_ = drafted_ = 0;
    idle_ = 0, patience_ = kPatience;
  }

  /// Plans a round of `texts` texts, one of which has `least` to `most` nodes if it drafts, and returns the
  /// answers to their questions; the limit is `texts` for plain decoding. Of `price` the rate and the limit
  /// are set here, most_lost is lowered, and catch_up is the least of the texts'.
  CurveCostModel begin(std::int32_t least, std::int32_t most, RoundPrice price) {
    const std::int32_t texts = price.texts, others = texts - 1;
    shared_ = price.shared;
    const double plain = target_(texts), late = price.catch_up;
    const double bound = price.most_lost;
    price.rate = rate(texts), price.limit = texts, price.most_lost = std::min(bound, balance_ * plain);
    std::int32_t size = 0;
    plan_ = plan(least, most, price, size);
    if (plan_ != Plan::measure) {
      // at first nothing is known of the costs; later, sizes grow by a factor of 2
      const bool first = plan_ == Plan::attempt && drafted_ == 0;
      if (first) price.most_lost = bound;
      const double room = price.most_lost - late - draft_(1) + plain;
      std::int32_t nodes = plan_ == Plan::attempt
                               ? others + size
                               : std::min(texts * most, std::max(others + least, 2 * target_.largest()));
      while (nodes >= others + least && target_.at_most(nodes) > room) --nodes;
      if (nodes >= others + least) price.limit = nodes;
    }
    if (plan_ == Plan::attempt && price.limit > texts) {
      price.rate = 0;
      if (idle_ > 0) estimator_.keep_at_most(kFew / 2);
    }
    return CurveCostModel(estimator_, target_, draft_, price);
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
    const double pass = learn_pass(round),
                 draft = shared_ ? round.draft_cost : learn_draft(round.timing.draft, round.drafted);
    const double plain = target_(round.texts), tokens = round.tokens / round.texts;
    const bool drafted = round.nodes > round.texts || round.timing.draft.calls > 0;
    if (plain > 0) {
      const double cost = (pass + draft) / plain;
      tokens_ = kFade * tokens_ + tokens;
      passes_ = kFade * passes_ + cost;
      drafted_ = kFade * drafted_ + (drafted ? 1 : 0);
      highest_ = std::max(highest_, balance_);
      balance_ = std::min(
          balance_ + (shared_ ? kShareOfMany : kShare) * tokens + (drafted ? tokens - cost : 0.0), kMax);
      if (balance_ <= highest_ - kFall) {
        estimator_.keep_at_most(kFew);
        highest_ = balance_;
      }
      if (drafted && tokens > cost)
        patience_ = kPatience;
      else if (drafted && plan_ == Plan::attempt)
        patience_ = std::min(2 * patience_, kMaxPatience);
      if (drafted)
        idle_ = 0;
      else if (plan_ != Plan::measure)
        ++idle_;
    }
    return pass + draft;
  }
  /// Learns from a draft pass over `width` nodes and `late` tokens that their texts had missed; returns what
  /// it cost, in the curves' unit.
  double learn_call(std::int32_t width, std::int32_t late, double seconds) {
    const auto all = static_cast<double>(width + late);
    if (draft_.given()) return draft_(width + late);
    if (!(pace_ > 0) || !(seconds > 0)) return 0;
    const double cost = seconds / pace_;
    const bool known = draft_.knows(width) || draft_.largest() > width;
    if (2 * late <= width) {
      draft_.learn(width, std::max(0.0, cost - late * (late_ >= 0 ? late_ : 0.5 * cost / all)));
    } else if (known) {
      const double per_token = std::max(0.0, cost - draft_(width)) / late;
      late_ = late_ < 0 ? per_token : 0.5 * (late_ + per_token);
    }
    return cost;
  }
  /// Learns T(n) alone, from a round whose draft tokens came from elsewhere.
  void learn_other(const BudgetRound& round) { learn_pass(round); }

  const CostCurve& target_costs() const { return target_; }            ///< by nodes, in no fixed unit
  const CostCurve& draft_costs() const { return draft_; }              ///< of a call, in the same unit
  const AcceptanceEstimator& estimator() const { return estimator_; }  ///< acceptance rates by confidence
  double balance() const { return balance_; }  ///< what drafting may still lose, in plain passes
  /// Throughput of the recent rounds in tokens per unit of the curves, at least that of plain decoding of
  /// `texts` texts; 0 before the first measurement.
  double rate(std::int32_t texts = 1) const {
    const double plain = target_(texts);
    return plain > 0 ? std::max(1.0, passes_ > 0 ? tokens_ / passes_ : 1.0) * texts / plain : 0.0;
  }
  /// Cost of a draft's catch-up: a call over one node per token at most. Until it is known, some tokens are
  /// assumed to take no more than four, since a pause would soon be too expensive to learn from.
  double catch_up(const DraftState& text) const {
    if (draft_.given()) return text.missed > 0 ? draft_(static_cast<std::int32_t>(text.missed)) : 0.0;
    const double call = draft_.knows(1) ? draft_(1) : kFirstCall * target_(1);
    double tokens = text.missed;
    if (late_ < 0 && text.missed * call <= kDare * target_(1)) tokens = std::min(text.missed, 4.0);
    return tokens * (late_ < 0 ? call : std::min(call, late_)) +
           (text.first_call ? std::max({0.0, prompt_, prompt_ < 0 ? late_ : 0.0}) * text.context : 0.0);
  }

 private:
  /// What a round is for.
  enum class Plan : std::uint8_t {
    measure,  // a plain pass, the baseline of every gain
    attempt,  // draft tokens although the estimates are against them or few: only this teaches about them
    draft     // as the estimates say; idle if they are against it
  };

  static constexpr double kShare = 0.01, kShareOfMany = 0.005, kAtFirst = 1.7, kMax = 8;  // passes; see above
  static constexpr double kFade = 1 - 1.0 / 64;  // factor per round on earlier ones
  static constexpr double kFew = 8;        // draft tokens for a usable estimate; half is kept after a pause
  static constexpr double kFall = 2.5;     // of the balance: acceptance has changed (a CUSUM test, Page 1954)
  static constexpr double kMargin = 1.05;  // smallest speedup to look for
  static constexpr double kEnough = 0.1;   // (3 standard deviations of 10%)^2: the variation of passes
  static constexpr double kFirstCall = 0.25;  // passes that a draft call is taken to cost before it is known
  static constexpr double kDare = 3;          // passes that the first catch-up after a pause may cost
  static constexpr double kPhase = 1.25;      // what a node more may cost, of an average one
  static constexpr double kOff = 1.2;         // change of the machine's pace
  static constexpr std::int32_t kRecent = 3;  // plain passes that show it, others in a row that may
  static constexpr double kChecks = 100;      // rounds of many texts until a plain one, for each unit of gain
  static constexpr std::int32_t kPatience = 4, kMaxPatience = 128;  // idle rounds before an attempt

  Plan plan(std::int32_t least, std::int32_t most, const RoundPrice& price, std::int32_t& size) {
    const std::int32_t texts = price.texts;
    if (!target_.knows(texts) && (texts == 1 || target_.largest() < texts)) return Plan::measure;
    size = least;
    if (!draft_.knows(1) && idle_ == 0) return Plan::attempt;
    // the smaller the gain, the better the baseline must be known
    const double gain = price.rate * target_(texts) / texts - 1;
    const bool long_ago = since_plain_ >= check_after_ ||
                          (shared_ && since_plain_ >= std::max<double>(kPatience, kChecks * gain));
    if (!target_.given() && (long_ago || doubts_ >= kRecent)) return Plan::measure;
    if (texts == 1 && gain > 0 &&
        target_.weight(1) <
            std::min({std::max(CostCurve::kSure, kEnough / (gain * gain)), CostCurve::kMemory, drafted_}))
      return Plan::measure;
    if (idle_ > 0) {
      if (idle_ < patience_) return Plan::draft;
    } else if (estimator_.groups() >= kFew || expects_gain(least, most, price)) {
      return Plan::draft;
    }
    size = promising_size(least, most, texts);
    return size > 0 ? Plan::attempt : Plan::draft;
  }
  bool expects_gain(std::int32_t least, std::int32_t most, RoundPrice price) {
    price.limit = price.texts - 1 + most;
    return CurveCostModel(estimator_, target_, draft_, price).call_pays({.adds = least - 1});
  }
  /// The smallest proposal of a text that would pay if all of it were accepted; 0 if there is none.
  std::int32_t promising_size(std::int32_t least, std::int32_t most, std::int32_t texts) const {
    const double plain = target_(texts), call = draft_(1);
    for (std::int32_t n = least; n <= most; ++n)
      if (kMargin * (plain / texts + target_(texts - 1 + n) - plain + (n - 1) * call) < n * plain / texts)
        return n;
    return 0;
  }

  /// Learns T(nodes) and returns the cost of this pass. Leaves out passes that held more than the nodes, and
  /// one over one node per text after one over several, for which engines plan anew.
  double learn_pass(const BudgetRound& round) {
    const std::int32_t nodes = round.nodes, texts = round.texts;
    const double seconds = round.timing.target.seconds;
    const bool drafts = nodes > texts, settled = drafts || last_nodes_ <= texts;
    last_nodes_ = nodes;
    if (target_.given() || !round.settled || !(seconds > 0)) return target_(nodes);
    if (!(pace_ > 0)) {
      pace_ = seconds;
      recent_.fill(seconds);
    }
    const double plain = target_(texts), known = target_.knows(nodes) ? target_(nodes) : 0.0;
    auto [least, most] = target_.bounds(nodes);
    if (drafts && plain > 0) {
      least = std::max(least, plain);
      // of a new size: anything above may be an interruption
      most = std::max(least, std::min(most, kPhase * nodes / texts * plain));
    }
    // the pace nearest to the last that explains the pass
    double shown = std::max(pace_, seconds / most);
    if (least > 0) shown = std::min(shown, seconds / least);
    if (drafts) {
      ++since_plain_;
      doubts_ = differs(shown, pace_) ? doubts_ + 1 : 0;
      doubted_ = shown;
    } else {
      follow_pace(shown);
    }
    double cost = seconds / pace_;
    if (const double dear = target_.at_most(nodes);
        drafts && plain > 0 && !(known > 0) && cost > dear && CostCurve::differ(cost, dear)) {
      // perhaps what an engine does once for each size: planning, allocation
      const std::uint64_t size = std::uint64_t{1} << (nodes % 64);
      if ((begun_ & size) == 0) return begun_ |= size, dear;
    }
    if (drafts && plain > 0) cost = std::clamp(cost, plain, known > 0 ? std::max(cost, plain) : most);
    const bool odd = known > 0 && CostCurve::differ(cost, known);
    if (settled) target_.learn(nodes, cost);
    return odd ? target_.at_most(nodes) : cost;
  }
  /// After a plain pass: the pace changes if the median of the last three does by a fifth. That of many
  /// texts, whose passes vary less and whose gains are smaller, is that median. Larger passes alone do not
  /// tell a machine that has become slow from nodes that cost more. So plain ones come in between: when three
  /// in a row do not take what they used to; else after 4 rounds, then ever more rarely while they agree with
  /// the pace, and until they do.
  void follow_pace(double shown) {
    if (doubts_ >= kRecent && !differs(shown, doubted_)) {  // all sizes agree
      pace_ = shown;
      recent_.fill(shown);
    }
    const bool agrees = !differs(shown, pace_);
    doubts_ = 0;
    std::shift_left(recent_.begin(), recent_.end(), 1);
    recent_.back() = shown;
    std::array<double, kRecent> sorted = recent_;
    std::nth_element(sorted.begin(), sorted.begin() + kRecent / 2, sorted.end());
    if (shared_ || differs(sorted[kRecent / 2], pace_)) pace_ = sorted[kRecent / 2];
    if (since_plain_ == 0) return;
    if (!agrees) {
      check_after_ = std::min(kPatience, since_plain_);
    } else {
      if (since_plain_ >= check_after_)
        check_after_ = std::clamp(2 * check_after_, kPatience, kMaxPatience / 2);
      since_plain_ = 0;
    }
  }
  static bool differs(double a, double b) { return a > kOff * b || b > kOff * a; }

  /// Learns the draft's costs, and returns what it took in this round.
  double learn_draft(const Usage& usage, const DraftState& text) {
    if (usage.calls < 1) return 0;
    const auto calls = static_cast<double>(usage.calls);
    const auto width = static_cast<std::int32_t>(usage.nodes / usage.calls);
    const bool first = text.first_call;
    if (draft_.given())
      return calls * draft_(width) + (text.missed > 0 ? draft_(static_cast<std::int32_t>(text.missed)) : 0.0);
    if (!(pace_ > 0)) return 0;
    const double cost = usage.seconds / pace_, call = draft_(1),
                 extra = std::max(0.0, cost - calls * draft_(width));
    const double per_token = extra / std::max(1.0, first ? text.context : text.missed);
    double& late = first ? prompt_ : late_;
    if (!draft_.knows(width)) {
      if (!first)
        draft_.learn(width, cost / calls);  // an upper bound, if it caught up as well
      else if (late < 0)
        return late = per_token, std::min(cost, kFirstCall * target_(1));
      return cost;
    }
    if (!first && text.missed <= 0) {
      draft_.learn(width, cost / calls);
      return calls * draft_(width);
    }
    const double bounded = std::min(per_token, kPhase * call);
    late = late < 0 ? bounded : 0.5 * (late + bounded);
    return calls * draft_(width) + bounded * (first ? text.context : text.missed);
  }

  CostCurve target_, draft_;
  AcceptanceEstimator estimator_;
  std::array<double, kRecent> recent_{};            // pace by each of the last plain passes
  double pace_ = 0;                                 // seconds per unit of a learned curve
  double balance_ = kAtFirst, highest_ = kAtFirst;  // highest_: since the last fall
  double tokens_ = 0, passes_ = 0, drafted_ = 0;
  double late_ = -1, prompt_ = -1;  // catch-up per missed token, and per prompt token; -1: not known
  std::uint64_t begun_ = 0;         // sizes whose first pass was left out, by their number modulo 64
  double doubted_ = 0;              // the pace by the last pass over more
  std::int32_t doubts_ = 0;         // passes over more in a row whose pace differs
  std::int32_t since_plain_ = 0, check_after_ = kPatience;
  std::int32_t idle_ = 0, patience_ = kPatience, last_nodes_ = 1;
  Plan plan_ = Plan::measure;
  bool shared_ = false;
};

}  // namespace specula
