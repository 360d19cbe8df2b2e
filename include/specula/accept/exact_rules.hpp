// SPDX-License-Identifier: MIT
// The exact acceptance rules: greedy, sample-and-match, rejection, traversal and block verification, and
// Sampling, the default, which chooses by the proposal's kind.
#pragma once

#include <cstddef>
#include <stdexcept>

#include "specula/accept/rules/matching.hpp"
#include "specula/accept/rules/rejection.hpp"
#include "specula/accept/rules/traversal.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/base/proposal_kind.hpp"
#include "specula/base/rows.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {
namespace detail {

/// SequenceVerifier without distributions: the proposal and its result. Always ok(): errors are thrown.
class SequenceState {
 public:
  SequenceState(const TokenTree& tree, VerifyResult& out) : tree_(tree), out_(out) { out.clear(); }

  bool ok() const { return true; }
  void check_proposal() const {}
  Token token(NodeId node) const { return tree_.token(node); }
  NodeId parent(NodeId node) const { return tree_.parent(node); }
  NodeId next_child(NodeId node, NodeId after) const {
    return after == node ? tree_.first_child(node) : tree_.next_sibling(after);
  }
  NodeId child_with(NodeId node, Token token) const {
    NodeId c = tree_.first_child(node);
    while (c != kNoParent && tree_.token(c) != token) c = tree_.next_sibling(c);
    return c;
  }

  /// From the first element to the last, or from the last to the first.
  void put(int i, NodeId node, Token next) {
    const auto at = static_cast<std::size_t>(i);
    if (at >= out_.accepted.size()) out_.accepted.resize(at + 1);
    out_.accepted[at] = node;
    if (at + 1 == out_.accepted.size()) out_.next_token = next;
  }
  void finish(int) {}

 protected:
  const TokenTree& tree_;

 private:
  VerifyResult& out_;
};

/// The CPU verifier that the rules of accept/rules/ run over: a TokenTree and the target's rows. accept/rules/verifier.hpp
/// documents the members. Costs are those of TargetDistributions and Residual.
template <class Rng>
class SequenceVerifier : public SequenceState {
 public:
  /// Requires a tree that passed target.expect_fits().
  SequenceVerifier(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out)
      : SequenceState(tree, out), target_(target), rng_(rng), states_(target.node_states()) {}

  Distribution distribution(NodeId node, int) const { return target_[node]; }
  Token argmax(NodeId node, int) const { return target_.argmax(node); }
  Token drawn(NodeId node, int depth) { return sample(node, target_[node], depth); }
  Token sample(NodeId node, const Distribution& distribution, int) {
    return target_.sample(distribution, tree_.sample_key(node), rng_);
  }
  double target_prob(const Distribution& distribution, NodeId child) const {
    return distribution(tree_.token(child));
  }
  double draft_prob(NodeId child) const { return tree_.draft_prob(child, tree_.token(child)); }
  bool accept(double probability, NodeId node, int) {
    return rng_.accept(probability, tree_.accept_key(node));
  }
  NodeId accept_chain() const { return 0; }

  void start_residual(NodeId node, const Distribution& distribution, int tried) {
    residual_ = target_.residual(distribution);
    residual_node_ = node;
    next_ = tree_.first_child(node);
    for (; tried > 0; --tried, next_ = tree_.next_sibling(next_))
      if (state(next_).keep > 0) residual_.redo(tree_, {next_, state(next_).keep, state(next_).total});
  }
  double residual_prob(NodeId child) const { return residual_.prob(tree_.token(child)); }
  double reject(double weight) {
    const NodeId child = next_;
    next_ = tree_.next_sibling(child);
    const double left = residual_.reject(tree_, child, weight);
    NodeState& rejected = state_of(child);
    rejected.keep = left > 0 ? residual_.last_step().keep : 0;
    rejected.total = left;
    return left;
  }
  Token sample_residual(int) { return rng_.draw(residual_.measured(), tree_.residual_key(residual_node_)); }

  const NodeState& state(NodeId node) const { return state_of(node); }
  template <class Change>
  void change(NodeId node, Change change) {
    change(state_of(node));
  }

 private:
  NodeState& state_of(NodeId node) const { return states_[node]; }

  const TargetDistributions& target_;
  Rng& rng_;
  NodeStates states_;
  ResidualView residual_;
  NodeId residual_node_ = kNoParent, next_ = kNoParent;  // next_: the child that reject() takes next
};

}  // namespace detail

///   specula::TreeVerifier verifier{target, specula::Greedy{}};
///
/// Greedy verification: a draft token is accepted iff it is the target's first largest logit. The text is
/// identical to greedy decoding, whatever the sampling parameters and however the proposal was drawn.
/// **Draws.** Nothing. **Cost.** One row read per node of the accepted path.
/// **Throws.** decide(): std::runtime_error for a bad row. **Source.** Leviathan et al. 2023, temperature 0.
struct Greedy {
  static constexpr bool lossless_for(ProposalKind) { return true; }  ///< Lossless for every kind.

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::greedy(verifier);
  }
};

///   specula::TreeVerifier verifier{target, specula::SampleAndMatch{}};
///
/// Exact-match verification: draws y ~ p after the root; descends to the child y if there is one, else emits
/// y; and so on from there. Never reads q, so it keeps the target's distribution for every proposal; for
/// deterministic ones no rule accepts more. The same seed gives the same text as plain sampling.
/// **Draws.** One `sample` per token. **Cost.** One row read per node of the accepted path.
/// **Throws.** decide(): std::runtime_error for a bad row. **Source.** Nothing; plain sampling, compared.
struct SampleAndMatch {
  static constexpr bool lossless_for(ProposalKind) { return true; }  ///< Lossless for every kind.

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::sample_and_match(verifier);
  }
};

///   specula::TreeVerifier verifier{target, specula::Rejection{}};
///
/// Rejection sampling of draft tokens, recursive over siblings. Tries children in drawing order: accepts x
/// with probability min(1, p(x) / q(x)), else p <- norm((p - q)+) and tries the next; if all are rejected,
/// draws the next token from the remaining p. q is the child's distribution given its earlier siblings, as
/// the tree recorded it, so p is kept with and without replacement and for mixed siblings.
/// **Draws.** One `accept` per node tried, then one `residual` or, where nothing was rejected, `sample`.
/// **Cost.** One row read per node of the accepted path; a rejection reads its two rows again.
/// **Throws.** decide(): std::runtime_error for a bad row.
/// **Source.** Leviathan et al. 2023, Chen et al. 2023; over siblings SpecInfer and Sequoia.
struct Rejection {
  /// Lossless unless the proposal shares the target's noise.
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::rejection(verifier);
  }
};

///   specula::TreeVerifier verifier{target, specula::Traversal{}};
///
/// Traversal verification, from the leaves to the root. A node carries a weight P, the root's being 1; its
/// child c gets P_c = min(1, P p(c) / q(c)). Descends to the leaves first: a leaf is accepted with its
/// weight. If all nodes below a node were rejected: after each rejected child S = sum (P p - q)+, p <-
/// norm((P p - q)+), P <- S / (S + 1 - P) with 0 / 0 = 0; finally the node itself is accepted with the
/// resulting P, and the next token is drawn from the resulting p. q is the child's distribution given its
/// earlier siblings, so the target's distribution is kept with and without replacement and for mixed
/// siblings. The shape of the tree may depend on the tokens drawn before, anywhere in the tree: once a
/// subtree is rejected, the remaining p and P carry no information about the tokens in it.
/// **Draws.** One `accept` per node tried of weight above 0, then one `residual` or, after a leaf, `sample`.
/// **Cost.** One row read per inner node on the way to the first accepted leaf; a rejection reads its
/// parent's row and the draft's again (chosen nodes: one logit).
/// **Throws.** decide(): std::runtime_error for a bad row.
/// **Source.** Weng et al. 2025; on one path Sun et al. 2024 (block verification).
struct Traversal {
  /// Lossless unless the proposal shares the target's noise.
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::traversal(verifier);
  }
};

///   specula::TreeVerifier verifier{target, specula::Block{}};
///
/// Block verification, of one path as a whole. With P_0 = 1 and P_i = min(1, P_{i-1} p(x_i) / q(x_i)):
/// accepts the longest prefix i whose own uniform draw is below h_i = S_i / (S_i + 1 - P_i), S_i = sum (P_i p
/// - q)+, with h = P at the end; then draws from norm((P_i p - q)+), after the end from p. No rule for one
/// path accepts more, and a path's length may depend on the drawn tokens. Equals Traversal on a chain, which
/// runs from the end to the beginning, so rows are read a second time only after a rejection.
/// **Draws.** As Traversal. **Cost.** As Traversal.
/// **Throws.** As Traversal, and std::invalid_argument if the proposal is no chain.
/// **Source.** Sun et al. 2024.
struct Block {
  /// Lossless for sampled chains.
  static constexpr bool lossless_for(ProposalKind kind) { return kind == ProposalKind::sampled; }

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    if (!tree.is_chain())
      throw std::invalid_argument("Block: the proposal is no chain; Traversal takes trees");
    Traversal{}.decide(tree, target, rng, out);
  }
};

///   specula::TreeVerifier verifier{target, specula::Sampling{}};
///
/// The default rule: deterministic proposals are verified by SampleAndMatch, which is optimal for them and
/// keeps the text of plain sampling; sampled ones by Traversal, which on one path is block verification, the
/// optimum there. The choice depends on the proposal, not on the shape, so a sampled shape over an n-gram
/// drafter also gets the optimal rule. This is exact because a proposal is deterministic if and only if it
/// used no uniform draw. A rule must not be chosen by the *drawn* tokens: choosing between two exact rules by
/// the tokens is not exact (tests/exact/known_failures.cpp). Proposals with shared noise require
/// GumbelCoupling instead of this rule.
/// **Draws.** As the chosen rule. **Cost.** As the chosen rule.
/// **Throws.** decide(): std::runtime_error for a bad row. **Source.** Those of both rules.
struct Sampling {
  /// Lossless unless the proposal shares the target's noise.
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    if (tree.kind() == ProposalKind::deterministic)
      SampleAndMatch{}.decide(tree, target, rng, out);
    else
      Traversal{}.decide(tree, target, rng, out);
  }
};

}  // namespace specula
