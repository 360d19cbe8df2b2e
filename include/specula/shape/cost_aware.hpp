// Proposals as large as they pay: any shape, bounded by what nodes cost and by how draft tokens have fared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "specula/base/fields.hpp"
#include "specula/base/running_mean.hpp"
#include "specula/concepts.hpp"
#include "specula/cost/acceptance_estimator.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/cost/curve_cost_model.hpp"
#include "specula/cost/draft_costs.hpp"
#include "specula/cost/loss_budget.hpp"
#include "specula/optional_members.hpp"
#include "specula/stats.hpp"

namespace specula {

/// Hands `shape` a CostModel with each round, which the shapes of this library ask before they draw or
/// choose: a chain ends, extras and branches are left out where they would cost more time than the tokens
/// they promise are worth. T(n) of the target, the draft's costs, how often draft tokens of a confidence
/// stayed, and the pipeline's rate are running estimates over the rounds so far. So on a machine where nodes
/// cost time the proposals are narrow, and where they come for free wide.
///
/// What is asked never depends on a uniform draw of the token in question, so the wrapped shape keeps its
/// distribution. But time is an input: with learned costs the same seed gives the same text only under rules
/// that give it for any shape (sample-and-match, shared noise, greedy). With both curves given, nothing
/// depends on the clock.
///
/// Where drafting does not pay it decodes plainly, and does not even sync() the draft; it tries again rarer
/// and rarer, as far as a LossBudget lets it: 1% of the text, two passes of the target at first, and what the
/// draft's first call reads of a prompt. What a draft takes to catch up after a pause is part of the price.
///
/// For a cascade it is a rough bound: all calls of a stack count as alike.
///
/// Cost: O(max_nodes()) additions a round. Needs usage() of verifier and drafter (TreeVerifier and
/// ModelDrafter have it) where a curve is to be learned.
template <class S>
class CostAware {
  static_assert(detail::check_shape_members<S>());

 public:
  static constexpr ProposalKind kind = S::kind;

  /// A default CostCurve is learned.
  explicit CostAware(S shape, CostCurve target = {}, CostCurve draft = {})
      : shape_(std::move(shape)), target_(std::move(target)), draft_(std::move(draft)) {}

  /// Whether what was learned of draft tokens and of the rate, and the account of losses, outlive a text.
  /// They do unless told otherwise; what was learned of costs always does.
  CostAware& carry(bool on) {
    carry_ = on;
    return *this;
  }

  std::int32_t max_nodes() const { return shape_.max_nodes(); }
  /// Throws what the shape's own validate() throws.
  void validate() const { detail::expect_valid(shape_); }
  /// Nodes that the drafter runs.
  std::int32_t draft_nodes() const {
    if constexpr (StatesDraftNodes<S>) return std::max(shape_.max_nodes(), shape_.draft_nodes());
    return shape_.max_nodes();
  }
  void reserve() {
    target_.reserve(max_nodes());
    draft_.reserve(draft_nodes());
    if constexpr (ReservesWorkspace<S>) shape_.reserve();
  }

  template <Drafter D, RandomSource C>
    requires ProposalShape<S, D>
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    context_ = static_cast<double>(round.committed.size());
    const bool tries = wants_to_try();
    const std::int32_t size = tries ? size_to_try() : least_size();
    since_try_ = tries ? 0 : since_try_ + 1;
    if (measures_plain() || !may_lose(size)) return tree.narrow(1);
    if (tries && idle_ > 0) estimator_.keep_at_most(kFew / 2);
    CurveCostModel cost_model(estimator_, target_, draft_.calls(), tries ? 0.0 : rate());
    ProposeContext bounded = round;
    bounded.cost_model = &cost_model;
    // A size not seen yet is tried when half of it was.
    bounded.max_nodes = std::min(round.max_nodes, tries ? size : std::max(size, 2 * target_.known()));
    tree.narrow(bounded.max_nodes);
    shape_.propose(drafter, bounded, tree, rng);
  }

  void learn(const TokenTree& tree, const VerifyResult& result, const Timing& timing) {
    const std::int32_t nodes = tree.size();
    const double tokens = static_cast<double>(result.accepted.size());
    learn_costs(nodes, timing);
    learn_draft_tokens(tree, result);
    learn_rate(nodes, tokens, timing.draft);
    settle(nodes, tokens, timing.draft);
    if constexpr (LearnsFromRounds<S>) shape_.learn(tree, result, timing);
  }

  void reset() {
    first_round_ = true;
    draft_.start();
    last_nodes_ = 1;
    if (!carry_) {
      estimator_ = {};
      budget_ = {};
      tokens_ = passes_ = 0;
      idle_ = 0, patience_ = kPatience;
    }
    if constexpr (ResetsPerText<S>) shape_.reset();
  }

  const S& shape() const { return shape_; }
  /// What a cascade's reviewers did.
  auto reviewed() const requires requires(const S& s) { s.reviewed(); }
  { return shape_.reviewed(); }
  const CostCurve& target_costs() const { return target_; }
  const CostCurve& draft_costs() const { return draft_.calls(); }
  const AcceptanceEstimator& estimator() const { return estimator_; }
  const LossBudget& budget() const { return budget_; }
  /// Tokens per second (or per unit of the given curves) that the rounds so far came to, at least plain
  /// decoding's; 0 before the first.
  double rate() const {
    const double plain = target_(1);
    return passes_ > 0 && plain > 0 ? std::max(1.0, tokens_ / passes_) / plain : 0.0;
  }

 private:
  static constexpr double kFade = 1 - 1.0 / 256;  // of what earlier rounds weigh, each round
  static constexpr double kSlow = 1 - 1.0 / 512;  // of what measurements of plain decoding weigh
  static constexpr double kFew = 8;  // draft tokens that tell something; half of that is kept over a pause
  static constexpr double kMargin = 1.05;       // a gain below that is not looked for
  static constexpr std::int32_t kPatience = 4;  // rounds without a draft token before one is tried
  static constexpr std::int32_t kMostPatience = 128, kMostHopeless = 1024;
  static constexpr std::int32_t kStale = 256;  // rounds after which plain decoding is measured again
  static constexpr double kFirstPasses = 2, kMostPasses = 48;
  static constexpr double kEnough = 0.1;  // (3 * 10%)^2: passes vary so much

  /// Nodes of the smallest proposal that holds a draft token.
  std::int32_t least_size() const {
    if constexpr (StatesLeastNodes<S>) return std::max(2, shape_.least_nodes());
    return 2;
  }
  /// Where no draft token is made for long nothing is learned of what it would be worth. And few draft tokens
  /// tell little: what looks like a loss by them may be chance.
  bool wants_to_try() {
    if (idle_ > 0) return idle_ >= patience_ || draft_.learns_pauses();
    return draft_.learns_calls() || looks_for_step() ||
           (estimator_.groups() < kFew && some_rate_pays() && !expects_gain());
  }
  bool looks_for_step() const { return since_try_ >= kPatience && target_.step() > 0; }
  /// By what was seen so far, however little.
  bool expects_gain() {
    return CurveCostModel(estimator_, target_, draft_.calls(), rate()).should_draft(1.0, 1, most_nodes());
  }
  /// Whether draft tokens would pay if they were all accepted.
  bool some_rate_pays() const {
    const double plain = target_(1), call = draft_.calls()(1);
    for (std::int32_t n = 2; n <= most_nodes(); ++n)
      if (kMargin * (target_(n) + call) < n * plain) return true;
    return false;
  }
  std::int32_t most_nodes() const { return std::min(max_nodes(), 2 * target_.known()); }
  /// Where some acceptance rate would pay, draft tokens are tried; else the next larger pass of the target.
  std::int32_t size_to_try() const {
    if (idle_ == 0 && looks_for_step()) return std::max(least_size(), target_.step());
    if (target_.given() || target_.known() >= max_nodes() || draft_.learns_pauses() || some_rate_pays())
      return least_size();
    return std::max(least_size(), most_nodes());
  }
  /// Plain decoding is what drafting is compared with: its time is measured the more often the less there
  /// is between the two.
  bool measures_plain() const {
    if (draft_.paused_too_short()) return true;
    if (target_.given() || draft_.learns_calls()) return false;
    if (plain_passes_ < kFirstPasses || since_plain_ >= kStale) return true;
    const double gain = budget_.gain();
    return gain > 0 && plain_passes_ < std::min({kEnough / (gain * gain), kMostPasses, budget_.rounds()});
  }
  /// Whether the account covers a proposal of `nodes` of which nothing is accepted. What a draft costs is not
  /// known before it was asked twice.
  bool may_lose(std::int32_t nodes) const {
    const double plain = target_(1);
    if (!(plain > 0) || draft_.learns_calls() || (!drafted_once_ && !draft_.calls().given())) return true;
    const double seconds = target_(nodes) + draft_.calls()(1) * (nodes - 1) + draft_.catch_up(context_);
    return budget_.allows(seconds / plain - 1);
  }

  /// The first round of a text is left out: it runs what the prompt left for it. So is a pass over one node
  /// after one over several: engines plan those anew.
  void learn_costs(std::int32_t nodes, const Timing& timing) {
    const bool first = std::exchange(first_round_, false), settled = nodes == 1 && last_nodes_ == 1;
    const double plain = target_(1);
    ++since_plain_;
    beside_ = draft_.learn(timing.draft, context_);
    if (target_.given() || first) return;
    if (nodes == 1 && !settled) {
      if (plain > 0) change_.learn(timing.target.seconds / plain);
      return;
    }
    target_.learn(nodes, timing.target.seconds);
    // A size seen once is not on the curve yet; what it took may be chance.
    if (!target_.sure(nodes))
      beside_ += std::max(0.0, std::min(timing.target.seconds, 0.5 * nodes * plain) - target_(nodes));
    plain_passes_ *= kSlow;
    if (settled) ++plain_passes_, since_plain_ = 0;
  }
  void learn_draft_tokens(const TokenTree& tree, const VerifyResult& result) {
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
  /// In passes of the target over one node, by the curves: one slow round, or a slow minute, changes nothing.
  double passes(std::int32_t nodes, const Usage& draft) const {
    double seconds = target_(nodes);
    if (draft.calls > 0)
      seconds += static_cast<double>(draft.calls) *
                 draft_.calls()(static_cast<std::int32_t>(draft.nodes / draft.calls));
    return seconds / target_(1);
  }
  void learn_rate(std::int32_t nodes, double tokens, const Usage& draft) {
    if (!(target_(1) > 0)) return;
    tokens_ = kFade * tokens_ + tokens;
    passes_ = kFade * passes_ + passes(nodes, draft);
  }
  /// Books what the round gained or lost against plain decoding.
  void settle(std::int32_t nodes, double tokens, const Usage& draft) {
    const double plain = target_(1);
    const bool drafted = nodes > 1 || draft.calls > 0;
    if (!drafted) draft_.pause(tokens);
    if (plain > 0 && drafted) {
      budget_.saw_draft_tokens(tokens, passes(nodes, draft) + beside_ / plain);
      if (budget_.fell()) estimator_.keep_at_most(kFew);
      if (idle_ == 0 && budget_.gain() > 0) patience_ = kPatience;
      drafted_once_ = true;
      idle_ = 0;
    } else if (plain > 0) {
      if (last_nodes_ > 1 && change_.known()) budget_.take(std::max(0.0, change_.value - 1));
      budget_.saw_plain(tokens);
      if (++idle_ == 1) patience_ = std::min(2 * patience_, some_rate_pays() ? kMostPatience : kMostHopeless);
    }
    last_nodes_ = nodes;
  }

  S shape_;
  CostCurve target_;
  DraftCosts draft_;
  AcceptanceEstimator estimator_;
  LossBudget budget_;
  detail::RunningMean change_;  // of a pass over one node after a larger one, by one after another
  double tokens_ = 0, passes_ = 0, context_ = 0, plain_passes_ = 0;
  double beside_ = 0;  // seconds of the round that the curves do not tell
  std::int32_t idle_ = 0, patience_ = kPatience, last_nodes_ = 1, since_plain_ = 0, since_try_ = 0;
  bool carry_ = true, first_round_ = true, drafted_once_ = false;
};

}  // namespace specula
