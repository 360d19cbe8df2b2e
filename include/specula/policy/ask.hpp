// SPDX-License-Identifier: MIT
// ask(): the drafter's rows, at once or in a pass that many texts share; and propose(), which calls any
// shape.
#pragma once

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "specula/base/fields.hpp"
#include "specula/base/rows.hpp"
#include "specula/base/steps.hpp"
#include "specula/model/expect_rows.hpp"
#include "specula/model/pass_request.hpp"
#include "specula/policy/propose_context.hpp"
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
/// the drafter's extend(); where a caller runs the passes (ProposalBuilder::waits_for_passes()) and the
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
