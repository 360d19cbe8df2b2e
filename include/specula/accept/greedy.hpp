// Greedy verification: a guess stays iff it is the target's first largest logit.
#pragma once

#include "../detail/follow.hpp"
#include "../target_laws.hpp"
#include "../token_tree.hpp"
#include "../verdict.hpp"

namespace specula {

/// Text identical to greedy decoding, whatever the sampling parameters say and however the proposal was
/// drawn. Cost: one read of a row for each node of the accepted path. Coins: none. Leviathan et al. 2023,
/// temperature 0.
struct Greedy {
  static constexpr bool exact_for(DraftLaw) { return true; }

  template <class Chance>
  void(verify)(const TokenTree& tree, const TargetLaws& target, Chance&, Verdict& out) const {
    (target.check)(tree);
    detail::follow(tree, out, [&](NodeId at) { return target.argmax(at); });
  }
};

}  // namespace specula
