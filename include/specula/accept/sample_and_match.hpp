// Sample from the target; go on while a guess is what was sampled.
#pragma once

#include "../detail/follow.hpp"
#include "../target_laws.hpp"
#include "../token_tree.hpp"
#include "../verdict.hpp"

namespace specula {

/// y ~ p after the root; if y is among the guesses descend, else emit it. Never looks at q, so it keeps the
/// target's law for every proposal; for deterministic ones no rule accepts more. Same seed, same text as
/// plain sampling. Cost: one read of a row for each node of the accepted path. Coins: one `sample` a token.
struct SampleAndMatch {
  static constexpr bool exact_for(DraftLaw) { return true; }

  template <class Chance>
  void(verify)(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    (target.check)(tree);
    detail::follow(tree, out,
                   [&](NodeId at) { return target.sample(target[at], tree.sample_site(at), chance); });
  }
};

}  // namespace specula
