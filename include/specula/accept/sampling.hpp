// The default acceptance rule: the strongest exact one for the proposal at hand.
#pragma once

#include "specula/accept/sample_and_match.hpp"
#include "specula/accept/traversal.hpp"

namespace specula {

/// Deterministic proposals are verified by SampleAndMatch, which is optimal for them and keeps the text of
/// plain sampling; sampled ones by Traversal, which on one path is block verification, the optimum there.
/// The contents of the proposal decide, so a sampled shape over an n-gram drafter gets the optimal rule
/// too.
///
/// That is sound because a proposal is deterministic exactly if it used no uniform draw. A rule must not be
/// chosen by what was *drawn*: two exact rules between which the tokens choose are not exact
/// (tests/exact/known_failures.cpp). Nor by whether noise was shared, so those proposals are not for this
/// rule but for GumbelCoupling.
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
