// Sample from the target; go on while a guess is what was sampled.
#pragma once

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
  void verify(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    target.check(tree);
    out.clear();
    for (NodeId at = 0; at != kNoParent;) {
      const RowLaw law = target[at];
      out.next = target.sample(law, tree.sample_site(at), chance);
      const NodeId from = at;
      at = kNoParent;
      tree.children(from, [&](NodeId c) {
        if (tree.token(c) != out.next) return true;
        at = c;
        return false;
      });
      if (at != kNoParent) out.path.push_back(at);
    }
  }
};

}  // namespace specula
