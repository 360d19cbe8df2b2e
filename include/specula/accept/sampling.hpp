// The rule to use when in doubt: an exact one that suits the proposal at hand.
#pragma once

#include "rejection.hpp"
#include "sample_and_match.hpp"

namespace specula {

/// Deterministic proposals go to sample-and-match, which is optimal for them and keeps the text of plain
/// sampling; all others to rejection. What the proposal holds decides, so a sampled shape over an n-gram
/// drafter is served best too.
struct Sampling {
  static constexpr bool exact_for(DraftLaw) { return true; }

  template <class Chance>
  void verify(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    if (tree.law() == DraftLaw::deterministic)
      SampleAndMatch{}.verify(tree, target, chance, out);
    else
      Rejection{}.verify(tree, target, chance, out);
  }
};

}  // namespace specula
