// Adaptive drafting: bounds any shape's proposals by measured costs and acceptance rates.
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

/// Gives `shape` a CostModel each round. The shapes of this library query it before they draw or choose: a
/// draft token, branch or extra is left out where its expected gain is below its cost. The inputs are running
/// estimates over the rounds so far: T(n) of the target, the draft's costs, the acceptance rate by
/// confidence, and the pipeline's rate. So proposals are narrow where nodes cost time, and wide where they do
/// not.
///
/// No query depends on a uniform draw of the token in question, so the wrapped shape keeps its distribution.
/// But time is an input: with learned costs the same seed gives the same text only under rules that give it
/// for any shape (sample-and-match, shared noise, greedy). With both curves given, nothing depends on the
/// clock.
///
/// Where drafting does not pay, a round is plain decoding without a sync() of the draft. Drafting is tried
/// again at growing intervals within a LossBudget: 1% of the text, two passes of the target at first, and the
/// prompt that the draft's first call processes. The draft's catch-up after a pause is part of its cost.
///
/// For a cascade it is a rough bound: all calls of a stack are assumed to cost the same.
///
/// Cost: O(max_nodes()) additions per round. A learned curve requires usage() of verifier and drafter, as
/// TreeVerifier and ModelDrafter have.
template <class S>
class CostAware {
  static_assert(detail::check_shape_members<S>());

 public:
  static constexpr ProposalKind kind = S::kind;  ///< how its draft tokens are drawn

  /// A default-constructed CostCurve is learned.
  explicit CostAware(S shape, CostCurve target = {}, CostCurve draft = {})
      : shape_(std::move(shape)), target_(std::move(target)), draft_(std::move(draft)) {}

  /// Whether the estimated acceptance rates, the rate and the loss budget are kept for the next text; the
  /// default is true. Learned costs are always kept.
  CostAware& carry(bool on) {
    carry_ = on;
    return *this;
  }

  /// Nodes of its largest proposal, root included.
  std::int32_t max_nodes() const { return shape_.max_nodes(); }
  /// Throws what the shape's own validate() throws.
  void validate() const { detail::expect_valid(shape_); }
  /// Nodes that the drafter runs.
  std::int32_t draft_nodes() const {
    if constexpr (StatesDraftNodes<S>) return std::max(shape_.max_nodes(), shape_.draft_nodes());
    return shape_.max_nodes();
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve() {
    target_.reserve(max_nodes());
    draft_.reserve(draft_nodes());
    if constexpr (ReservesWorkspace<S>) shape_.reserve();
  }

  /// Grows `tree` from its root; see ProposalShape.
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
    // Sizes grow at most by a factor of 2 beyond those measured.
    bounded.max_nodes = std::min(round.max_nodes, tries ? size : std::max(size, 2 * target_.known()));
    tree.narrow(bounded.max_nodes);
    shape_.propose(drafter, bounded, tree, rng);
  }

  /// Learns from a round's result.
  void learn(const TokenTree& tree, const VerifyResult& result, const Timing& timing) {
    const std::int32_t nodes = tree.size();
    const double tokens = static_cast<double>(result.accepted.size());
    learn_costs(nodes, timing);
    learn_draft_tokens(tree, result);
    learn_rate(nodes, tokens, timing.draft);
    settle(nodes, tokens, timing.draft);
    if constexpr (LearnsFromRounds<S>) shape_.learn(tree, result, timing);
  }

  /// Begins a text.
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

  const S& shape() const { return shape_; }  ///< the wrapped shape
  /// The counts of a cascade's reviewers.
  auto reviewed() const requires requires(const S& s) { s.reviewed(); }
  { return shape_.reviewed(); }
  /// T(n), in seconds or the unit of the given curve.
  const CostCurve& target_costs() const { return target_; }
  const CostCurve& draft_costs() const { return draft_.calls(); }      ///< of a draft call by its nodes
  const AcceptanceEstimator& estimator() const { return estimator_; }  ///< acceptance rates by confidence
  const LossBudget& budget() const { return budget_; }                 ///< what exploration may still lose
  /// Throughput of the rounds so far in tokens per second (or per unit of the given curves), at least that of
  /// plain decoding; 0 before the first round.
  double rate() const {
    const double plain = target_(1);
    return passes_ > 0 && plain > 0 ? std::max(1.0, tokens_ / passes_) / plain : 0.0;
  }

 private:
  static constexpr double kFade = 1 - 1.0 / 256;  // factor per round on the weight of earlier rounds
  static constexpr double kSlow = 1 - 1.0 / 512;  // the same for measurements of plain decoding
  static constexpr double kFew = 8;        // draft tokens for a usable estimate; half is kept over a pause
  static constexpr double kMargin = 1.05;  // smallest speedup to try for
  static constexpr std::int32_t kPatience = 4;  // rounds without a draft token before one is tried
  static constexpr std::int32_t kMostPatience = 128, kMostHopeless = 1024;
  static constexpr std::int32_t kStale = 256;  // rounds after which plain decoding is measured again
  static constexpr double kFirstPasses = 2, kMostPasses = 48;
  static constexpr double kEnough = 0.1;  // (3 standard deviations of 10%)^2: the variation of passes

  /// Nodes of the smallest proposal that holds a draft token.
  std::int32_t least_size() const {
    if constexpr (StatesLeastNodes<S>) return std::max(2, shape_.least_nodes());
    return 2;
  }
  /// Whether to draft although the estimates may be against it: without drafting nothing is learned about
  /// draft tokens, and an estimate from few of them is unreliable.
  bool wants_to_try() {
    if (idle_ > 0) return idle_ >= patience_ || draft_.learns_pauses();
    return draft_.learns_calls() || looks_for_step() ||
           (estimator_.groups() < kFew && some_rate_pays() && !expects_gain());
  }
  bool looks_for_step() const { return since_try_ >= kPatience && target_.step() > 0; }
  /// Whether a first draft token pays by the estimates so far.
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
  /// Nodes of a trial: the least if some acceptance rate would pay, else the next larger pass of the target.
  std::int32_t size_to_try() const {
    if (idle_ == 0 && looks_for_step()) return std::max(least_size(), target_.step());
    if (target_.given() || target_.known() >= max_nodes() || draft_.learns_pauses() || some_rate_pays())
      return least_size();
    return std::max(least_size(), most_nodes());
  }
  /// Whether this round measures plain decoding, the baseline of every gain: the more often, the smaller the
  /// difference to drafting.
  bool measures_plain() const {
    if (draft_.paused_too_short()) return true;
    if (target_.given() || draft_.learns_calls()) return false;
    if (plain_passes_ < kFirstPasses || since_plain_ >= kStale) return true;
    const double gain = budget_.gain();
    return gain > 0 && plain_passes_ < std::min({kEnough / (gain * gain), kMostPasses, budget_.rounds()});
  }
  /// Whether the budget covers a proposal of `nodes` without an accepted draft token. True while the draft's
  /// costs are unknown, which takes two rounds with a draft.
  bool may_lose(std::int32_t nodes) const {
    const double plain = target_(1);
    if (!(plain > 0) || draft_.learns_calls() || (!drafted_once_ && !draft_.calls().given())) return true;
    const double seconds = target_(nodes) + draft_.calls()(1) * (nodes - 1) + draft_.catch_up(context_);
    return budget_.allows(seconds / plain - 1);
  }

  /// Leaves out the first round of a text, which processes what the prompt deferred, and a pass over one node
  /// after one over several, for which engines plan anew.
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
    // A size seen once is not on the curve yet; its time may be an outlier.
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
  /// Cost of a round in passes of the target over one node, by the curves, so that a slow round has no
  /// effect.
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
  /// Adds the round's gain or loss against plain decoding to the budget.
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
  detail::RunningMean change_;  // time of a pass over one node after a larger one, over target_(1)
  double tokens_ = 0, passes_ = 0, context_ = 0, plain_passes_ = 0;
  double beside_ = 0;  // seconds of the round that the curves do not include
  std::int32_t idle_ = 0, patience_ = kPatience, last_nodes_ = 1, since_plain_ = 0, since_try_ = 0;
  bool carry_ = true, first_round_ = true, drafted_once_ = false;
};

}  // namespace specula
