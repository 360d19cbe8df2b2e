// The rule to use when in doubt: the strongest exact one for the proposal at hand.
#pragma once

#include "specula/accept/sample_and_match.hpp"
#include "specula/accept/traversal.hpp"

namespace specula {

/// Deterministic proposals go to sample-and-match, which is optimal for them and keeps the text of plain
/// sampling; sampled ones to traversal, which on one path is block verification, the optimum there. What the
/// proposal holds decides, so a sampled shape over an n-gram drafter is served best too.
///
/// That is sound because a proposal is deterministic exactly if no uniform draw was asked for it. A rule must
/// not be chosen by what was *drawn*: two exact rules of which the tokens choose one are not exact
/// (tests/exact/known_failures.cpp). Nor by whether noise was shared, which is why those proposals are not
/// for this rule but for GumbelCoupling.
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
