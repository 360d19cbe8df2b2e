// SPDX-License-Identifier: MIT
// What a ProposalShape sees of a round: ProposeContext, and the CostModel that decides when to stop drafting.
// Its drafter's rows it gets from ask().
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstdint>
#include <span>

#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/proposal/proposal_builder.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/proposal/waiters.hpp"

namespace specula {

/// Decides whether further draft tokens pay, by three questions: does a draft call pay, does a drafted token
/// pay, how many of these pay. An interface, which cost/curve_cost_model.hpp implements for
/// shape/cost_aware.hpp, and for many texts batch/run_round.hpp. Answers depend on past rounds and on
/// the arguments of this round's questions, never on a uniform draw that comes later: a shape that asks
/// *before* it draws keeps the distribution.
///
/// In all members, `reach` is the probability that the parent of the draft token is accepted, and `nodes` the
/// size of the proposal so far, the root included.
class CostModel {
 public:
  virtual ~CostModel() = default;

  /// Acceptance probability of a draft token of this confidence, given that its parent is accepted.
  virtual double accept_probability(double confidence) const = 0;
  /// Whether a draft pass pays. One that pays is assumed to be made.
  virtual bool call_pays(const DraftCall& call) = 0;
  /// Whether draft calls are granted together with those of other texts, so that a round waits for it.
  virtual bool is_shared() const { return false; }
  /// Whether a drafted token of this confidence pays as the next node of a chain. To be asked once for each
  /// drafted token: the confidences that occur are an input of call_pays().
  virtual bool node_pays(double reach, double confidence, std::int32_t nodes) = 0;
  /// The number of draft tokens to add to a proposal of `nodes`, given their acceptance probabilities,
  /// largest first.
  virtual std::int32_t best_count(std::span<const double> probabilities, std::int32_t nodes) const = 0;

 protected:
  /// @cond
  CostModel() = default;
  CostModel(const CostModel&) = default;
  CostModel& operator=(const CostModel&) = default;
  /// @endcond
};

/// The answer to ProposeContext::call_pays(). A shape whose propose() is a coroutine awaits it; any other
/// function takes it now().
class [[nodiscard]] Grant {
 public:
  /// Asks at once, unless the costs are shared and the tree waits.
  Grant(CostModel* cost_model, ProposalBuilder& tree, const DraftCall& call)
      : waits_(cost_model && cost_model->is_shared() && tree.waits_for_passes()),
        pays_(!cost_model || (!waits_ && cost_model->call_pays(call))),
        cost_model_(cost_model),
        waiter_(tree.bidder(), call) {}
  Grant(const Grant&) = delete;
  Grant& operator=(const Grant&) = delete;

  /// The answer for this text alone.
  bool now() { return waits_ ? cost_model_->call_pays(waiter_.call()) : pays_; }

  /// @cond
  bool await_ready() const noexcept { return !waits_; }
  void await_suspend(std::coroutine_handle<> frame) noexcept { waiter_.suspend(frame); }
  bool await_resume() const noexcept { return waits_ ? waiter_.pays() : pays_; }
  /// @endcond

 private:
  bool waits_, pays_;
  CostModel* cost_model_;
  detail::GrantWaiter waiter_;
};

/// The round as a shape sees it. Rows of the draft become distributions by `params`, the target's own.
struct ProposeContext {
  Tokens committed;                 ///< all emitted tokens but the root
  SamplingParams params;            ///< the verifier's
  std::int32_t max_nodes;           ///< nodes that fit, root included
  CostModel* cost_model = nullptr;  ///< null: every draft token pays
  Tokens stop = {};                 ///< tokens that end the text; see Limits::stop

  /// Whether the text ends at a draft token, so that none should follow it. Leaving those out does not bias
  /// the text: the token they would follow is known by then.
  bool ends_text(Token draft_token) const {
    return std::find(stop.begin(), stop.end(), draft_token) != stop.end();
  }
  /// The same for a node of the proposal. The root never ends the text: it goes on.
  bool ends_text(const TokenTree& tree, NodeId node) const {
    return node != 0 && ends_text(tree.token(node));
  }

  /// The questions of CostModel. Without a cost model, the draft's confidence is the acceptance probability,
  /// and everything pays.
  double accept_probability(double confidence) const {
    return cost_model ? cost_model->accept_probability(confidence) : confidence;
  }
  /// Probability that `node` is accepted: the product along its path. 1 without a cost model.
  double reach(const TokenTree& tree, NodeId node) const {
    double product = 1;
    for (NodeId n = node; cost_model && n != 0; n = tree.parent(n))
      product *= accept_probability(static_cast<double>(tree.confidence(n)));
    return product;
  }
  /// See CostModel; must be asked before the tokens are drawn: in a coroutine `co_await call_pays(...)`, in
  /// any other function `call_pays(...).now()`.
  Grant call_pays(ProposalBuilder& tree, const DraftCall& call) const { return {cost_model, tree, call}; }
  /// For the draft's likeliest token only: leaving out a token that was drawn would bias the text.
  bool node_pays(double reach, double confidence, std::int32_t nodes) const {
    return !cost_model || cost_model->node_pays(reach, confidence, nodes);
  }
};

/// Whether `drafter` has room for the context and a draft token after it. A shape must not call a member of a
/// Stack that has none (for a drafter alone, Speculator has made sure). The answer depends on the context
/// only, so leaving a member out does not bias the text.
template <class D>
bool can_draft(const D& drafter, const ProposeContext& round) {
  return drafter.capacity() > static_cast<std::int32_t>(round.committed.size()) + 1;
}

}  // namespace specula
