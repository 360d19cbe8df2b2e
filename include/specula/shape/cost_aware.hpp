// SPDX-License-Identifier: MIT
// Adaptive drafting: bounds any shape's proposals by measured costs and acceptance rates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "specula/base/fields.hpp"
#include "specula/base/stats.hpp"
#include "specula/cost/batch_budget.hpp"
#include "specula/cost/cost_curve.hpp"
#include "specula/cost/curve_cost_model.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/optional_members.hpp"

namespace specula {

///   specula::CostAware shape{specula::Chain<>{.length = 8}};
///
/// Gives `shape` a CostModel each round. The shapes of this library query it before they draw or choose: a
/// draft token, branch or extra is left out where its expected gain is below its cost. The inputs are running
/// estimates over the rounds so far, in a BatchBudget: T(n) of the target, the draft's costs, the acceptance
/// rate by confidence, and the pipeline's rate. So proposals are narrow where nodes cost time, and wide where
/// they do not. For a cascade it is a rough bound: all calls of a stack are assumed to cost the same. Where
/// drafting does not pay, a round is plain decoding without a sync() of the draft. Drafting is tried again at
/// growing intervals, as long as the balance of the budget covers the loss: 0.7 passes of the target at
/// first, in the end 1% of the tokens of all texts and 1.7 passes. The draft's catch-up after a pause is part
/// of its cost. Where many texts have a budget in common (BatchBudget), that decides, and this is the shape
/// itself.
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
    shared_ = round.cost_model && round.cost_model->is_shared();
    if (shared_) {
      co_await specula::propose(shape_, drafter, round, tree, rng);
      co_return;
    }
    draft_.context = static_cast<double>(round.committed.size());
    CurveCostModel cost_model =
        budget_.begin(std::max(2, nodes().least), round.max_nodes,
                      {.chosen = kind == ProposalKind::deterministic || round.params.greedy(),
                       .catch_up = budget_.catch_up(draft_)});
    if (cost_model.limit() < 2) co_return;
    tree.narrow(cost_model.limit());
    ProposeContext bounded = round;
    bounded.cost_model = &cost_model;
    bounded.max_nodes = cost_model.limit();
    co_await specula::propose(shape_, drafter, bounded, tree, rng);
  }

  /// Learns from a round's result. Returns what the round cost, in the curves' unit; 1 if the costs are
  /// shared.
  double learn(const TokenTree& tree, const VerifyResult& result, const Timing& timing) {
    if constexpr (LearnsFromRounds<S>) shape_.learn(tree, result, timing);
    if (shared_) return 1;
    budget_.see(tree, result);
    const double cost = budget_.learn(of_round(tree, result, timing));
    end_round(result, timing.draft.calls);
    return cost;
  }

  /// Learns from a round that something else proposed: what its pass took, and which tokens the draft missed.
  void learn_other(const TokenTree& tree, const VerifyResult& result, const Timing& timing) {
    budget_.learn_other(of_round(tree, result, timing));
    end_round(result, 0);
  }

  /// Begins a text.
  void reset() {
    if (!carry_) budget_.forget();
    draft_ = {};
    first_pass_ = true;
    if constexpr (LearnsFromRounds<S>) shape_.reset();
  }

  /// Of `most` nodes, those that a round of something else may have: see BatchBudget::probed().
  std::int32_t probed(std::int32_t most) { return budget_.probed(2, most); }

  const S& shape() const { return shape_; }  ///< the wrapped shape
  /// The counts of a cascade's reviewers; empty for another shape. See CountsReviews.
  std::span<const Reviews> reviewed() const {
    if constexpr (CountsReviews<S>) return shape_.reviewed();
    return {};
  }
  const BatchBudget& budget() const { return budget_; }  ///< what it has learned

 private:
  /// The first pass of a text processes what the prompt deferred.
  BudgetRound of_round(const TokenTree& tree, const VerifyResult& result, const Timing& timing) const {
    return {.nodes = tree.size(),
            .tokens = static_cast<double>(result.accepted.size()),
            .timing = timing,
            .drafted = draft_,
            .settled = !first_pass_};
  }
  void end_round(const VerifyResult& result, std::int64_t draft_calls) {
    draft_.add_round(static_cast<double>(result.accepted.size()), draft_calls);
    first_pass_ = false;
  }

  S shape_;
  BatchBudget budget_;
  DraftState draft_;
  bool carry_ = true, first_pass_ = true;
  bool shared_ = false;  // a budget of many texts decides about this round
};

}  // namespace specula
