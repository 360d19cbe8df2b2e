// The default acceptance rule: chooses exact-match or traversal verification by the proposal's kind.
#pragma once

#include "specula/accept/sample_and_match.hpp"
#include "specula/accept/traversal.hpp"

namespace specula {

/// Deterministic proposals are verified by SampleAndMatch, which is optimal for them and keeps the text of
/// plain sampling; sampled ones by Traversal, which on one path is block verification, the optimum there. The
/// choice depends on the proposal, not on the shape, so a sampled shape over an n-gram drafter also gets the
/// optimal rule.
///
/// This is exact because a proposal is deterministic if and only if it used no uniform draw. A rule must not
/// be chosen by the *drawn* tokens: choosing between two exact rules by the tokens is not exact
/// (tests/exact/known_failures.cpp). Proposals with shared noise require GumbelCoupling instead of this rule.
struct Sampling {
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    target.check_for("Sampling", tree);
    if (tree.kind() == ProposalKind::deterministic)
      (SampleAndMatch{}.verify)(tree, target, rng, out);
    else
      (Traversal{}.verify)(tree, target, rng, out);
  }
};

}  // namespace specula
