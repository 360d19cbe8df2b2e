// SPDX-License-Identifier: MIT
// What a ProposalShape asks in one round: ProposeContext, the CostModel that decides when to stop drafting,
// and ask(), which requests the drafter's rows.
#pragma once

#include <algorithm>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/steps.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/proposal/proposal_builder.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/proposal/waiters.hpp"

/// @cond
// A macro: C++20's static_assert takes a literal only.
#define SPECULA_ASK                                                                        \
  "ask(...) has no rows yet: write `co_await ask(...)` in a function that returns Steps, " \
  "`ask(...).now()` in any other"
/// @endcond

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

/// Throws std::invalid_argument unless `rows` has one row over the vocabulary of `tree` per node.
inline void expect_rows(const LogitsView& rows, std::size_t nodes, const TokenTree& tree) {
  detail::expect_rows("the draft", rows, nodes, tree.vocab());
}
/// The same for a drafter without rows: one token per node, and as many confidences or none.
inline void expect_rows(const PointMasses& points, std::size_t nodes, const TokenTree&) {
  if (points.tokens.size() != nodes || (!points.confidences.empty() && points.confidences.size() != nodes))
    throw std::invalid_argument("the draft gave " + detail::number(points.tokens.size()) + " tokens and " +
                                detail::number(points.confidences.size()) + " confidences for " +
                                detail::number(nodes) + " nodes");
}

namespace detail {
/// Calls `draft`, and returns what it threw if a failing draft may throw that: a std::exception, but for
/// std::logic_error, which is misuse and propagates, as does what is no std::exception.
template <class F>
std::exception_ptr failure_of(F draft) {
  try {
    draft();
  } catch (const std::logic_error&) {
    throw;
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

/// The same for what is awaited: `co_await Failure(steps)` returns it.
class Failure {
 public:
  explicit Failure(Steps steps) : steps_(std::move(steps)) {}
  bool await_ready() { return steps_.await_ready(); }
  void await_suspend(std::coroutine_handle<> caller) noexcept { steps_.await_suspend(caller); }
  std::exception_ptr await_resume() {
    return failure_of([&] { steps_.rethrow(); });
  }

 private:
  Steps steps_;
};
}  // namespace detail

/// The drafter's answer to ask(): its rows, or tokens. A shape whose propose() is a coroutine awaits it; any
/// other function takes it now().
template <class D>
class [[nodiscard]] Asked {
 public:
  using Rows = decltype(std::declval<D&>().extend(Tokens(), Nodes()));  ///< LogitsView or PointMasses

  /// See ask().
  Asked(D& drafter, ProposalBuilder& tree, Tokens tokens, Nodes parents)
      : drafter_(drafter), tree_(tree), tokens_(tokens), parents_(parents) {
    if (parents.size() != tokens.size())
      throw std::invalid_argument("ask: " + detail::number(parents.size()) + " parents for " +
                                  detail::number(tokens.size()) + " tokens");
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  /// Runs the drafter, whether or not the tree waits for passes.
  Rows now() { return checked(drafter_.extend(tokens_, parents_)); }

  /// @cond
  bool await_ready() {
    if constexpr (MergesPasses<D>) {
      if (tree_.waits_for_passes()) {
        const PassRequest request = drafter_.begin_pass(tokens_, parents_);
        if (request.batch) pass_.emplace(tree_.waiter(), request);
        if (pass_) return false;
      }
    }
    rows_ = now();
    return true;
  }
  void await_suspend(std::coroutine_handle<> frame) { pass_->await_suspend(frame); }
  Rows await_resume() {
    if constexpr (MergesPasses<D>)
      if (pass_) return checked(drafter_.end_pass(pass_->await_resume()));
    return rows_;
  }
  template <class T>
  operator T() const {
    static_assert(!sizeof(T), SPECULA_ASK);
  }
  template <class T>
  T row(T) const {
    static_assert(!sizeof(T), SPECULA_ASK);
  }
  /// @endcond

 private:
  Rows checked(const Rows& rows) const {
    expect_rows(rows, tokens_.size(), tree_);
    return rows;
  }

  D& drafter_;
  ProposalBuilder& tree_;
  Tokens tokens_;
  Nodes parents_;
  Rows rows_{};
  std::optional<detail::PassWaiter> pass_;
};

/// The prediction after each of these nodes, with a check of its size, since reading a row is unchecked:
/// shapes must call this in place of drafter.extend(). In a coroutine, `co_await ask(...)`: alone, that is
/// the drafter's extend(); where somebody else runs the passes (ProposalBuilder::waits_for_passes()) and the
/// drafter can be merged, the shape waits for them. In any other function `ask(...).now()`, which never
/// waits. `tokens` and `parents` must live until then. Throws std::invalid_argument, with the numbers, unless
/// there is one parent per token and the drafter returns one row (or token) per node. Cost: the drafter's,
/// and a few comparisons.
template <class D>
Asked<D> ask(D& drafter, ProposalBuilder& tree, Tokens tokens, Nodes parents) {
  return Asked<D>(drafter, tree, tokens, parents);
}

namespace detail {

/// Calls a propose() that is no coroutine, in whose shape nothing waits.
template <class S, class D, class C>
SPECULA_STEPS propose_alone(S& shape, D& drafter, const ProposeContext& round, ProposalBuilder& tree,
                            C& rng) {
  class Alone {
   public:
    explicit Alone(ProposalBuilder& waiting) : tree_(waiting), waits_(waiting.waits_for_passes()) {
      tree_.wait_for_passes(false);
    }
    ~Alone() { tree_.wait_for_passes(waits_); }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    ProposalBuilder& tree_;
    bool waits_;
  };
  const Alone alone(tree);
  shape.propose(drafter, round, tree, rng);
  co_return;
}

}  // namespace detail

/// shape.propose(), be it a coroutine or not: what calls a shape that it does not know must call this.
template <class S, class D, class C>
Steps propose(S& shape, D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
  if constexpr (std::is_void_v<decltype(shape.propose(drafter, round, tree, rng))>)
    return detail::propose_alone(shape, drafter, round, tree, rng);
  else
    return shape.propose(drafter, round, tree, rng);
}

}  // namespace specula

#undef SPECULA_ASK
