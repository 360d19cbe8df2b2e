// The rule to use when in doubt: the strongest exact one for the proposal at hand.
#pragma once

#include "sample_and_match.hpp"
#include "shared_noise.hpp"
#include "traversal.hpp"

namespace specula {

/// Deterministic proposals go to sample-and-match, which is optimal for them and keeps the text of plain
/// sampling; sampled ones to traversal, which on one path is block verification, the optimum there; those
/// drawn by shared noise to its rule, or to sample-and-match if the coins make no noise. What the proposal
/// holds decides, so a sampled shape over an n-gram drafter is served best too.
///
/// That is sound because a proposal is deterministic exactly if no coin was asked for it. A rule must not be
/// chosen by what was *drawn*: two exact rules of which the tokens choose one are not exact
/// (tests/exact/known_failures).
struct Sampling {
  static constexpr bool exact_for(DraftLaw) { return true; }

  template <class Chance>
  void verify(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    const DraftLaw law = tree.law();
    if constexpr (NoiseSource<Chance>)
      if (law == DraftLaw::shared) return SharedNoise{}.verify(tree, target, chance, out);
    if (law == DraftLaw::deterministic || law == DraftLaw::shared)
      SampleAndMatch{}.verify(tree, target, chance, out);
    else
      Traversal{}.verify(tree, target, chance, out);
  }
};

}  // namespace specula
