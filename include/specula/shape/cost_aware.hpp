// Adaptive drafting: bounds any shape's proposals by measured costs and acceptance rates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "specula/base/fields.hpp"
#include "specula/base/stats.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/cost/curve_cost_model.hpp"
#include "specula/cost/draft_budget.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"

namespace specula {

/// Gives `shape` a CostModel each round. The shapes of this library query it before they draw or choose: a
/// draft token, branch or extra is left out where its expected gain is below its cost. The inputs are running
/// estimates over the rounds so far, in a DraftBudget: T(n) of the target, the draft's costs, the acceptance
/// rate by confidence, and the pipeline's rate. So proposals are narrow where nodes cost time, and wide where
/// they do not. For a cascade it is a rough bound: all calls of a stack are assumed to cost the same. Where
/// drafting does not pay, a round is plain decoding without a sync() of the draft. Drafting is tried again at
/// growing intervals, as long as the balance of the budget covers the loss: 1% of the tokens of all texts and
/// 1.7 passes of the target at first. The draft's catch-up after a pause is part of its cost.
/// **Draws.** As the wrapped shape, which keeps its distribution: no query depends on a uniform draw of the
/// token in question. But time is an input: with learned costs the same seed gives the same text only under
/// rules that give it for any shape (sample-and-match, shared noise, greedy). With both curves given, nothing
/// depends on the clock.
/// **Cost.** O(nodes().most) additions per round. A learned curve requires usage() of verifier and drafter.
/// **Throws.** What the wrapped shape throws. **Source.** Nothing of a paper's.
template <class S>
class CostAware {
  static_assert(detail::check_shape_members<S>());

 public:
  static constexpr ProposalKind kind = S::kind;  ///< how its draft tokens are drawn

  /// A default-constructed CostCurve is learned.
  explicit CostAware(S shape, CostCurve target = {}, CostCurve draft = {})
      : shape_(std::move(shape)), budget_(std::move(target), std::move(draft)) {}

  /// Whether the estimated acceptance rates, the rate and the balance are kept for the next text; the default
  /// is true. Learned costs are always kept.
  CostAware& carry(bool on) {
    carry_ = on;
    return *this;
  }

  NodeCounts nodes() const { return shape_.nodes(); }  ///< the shape's own
  /// Throws what the shape's own validate() throws.
  void validate() const { detail::expect_valid(shape_); }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& sizes = {}) {
    budget_.reserve(nodes().most, nodes().held());
    if constexpr (Reserves<S>) shape_.reserve(sizes);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <Drafter D, RandomSource C>
  SPECULA_STEPS propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree,
                        C& rng) requires ProposalShape<S, D> {
    CurveCostModel cost_model =
        budget_.begin(static_cast<std::int32_t>(round.committed.size()), std::max(2, nodes().least),
                      round.max_nodes, kind == ProposalKind::deterministic || round.params.greedy());
    tree.narrow(cost_model.limit());
    if (cost_model.limit() < 2) co_return;
    ProposeContext bounded = round;
    bounded.cost_model = &cost_model;
    bounded.max_nodes = cost_model.limit();
    co_await specula::propose(shape_, drafter, bounded, tree, rng);
  }

  /// Learns from a round's result. Returns what the round cost, in the curves' unit.
  double learn(const TokenTree& tree, const VerifyResult& result, const Timing& timing) {
    if constexpr (LearnsFromRounds<S>) shape_.learn(tree, result, timing);
    return budget_.learn(tree, result, timing);
  }

  /// Learns from a round that something else proposed: what its pass took, and which tokens the draft missed.
  void learn_other(const TokenTree& tree, const VerifyResult& result, const Timing& timing) {
    budget_.learn_other(tree, result, timing);
  }

  /// Begins a text.
  void reset() {
    budget_.start(carry_);
    if constexpr (LearnsFromRounds<S>) shape_.reset();
  }

  const S& shape() const { return shape_; }  ///< the wrapped shape
  /// The counts of a cascade's reviewers; empty for another shape. See CountsReviews.
  std::span<const Reviews> reviewed() const {
    if constexpr (CountsReviews<S>) return shape_.reviewed();
    return {};
  }
  const DraftBudget& budget() const { return budget_; }  ///< what it has learned

 private:
  S shape_;
  DraftBudget budget_;
  bool carry_ = true;
};

}  // namespace specula
