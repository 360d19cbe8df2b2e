// SPDX-License-Identifier: MIT
// Rejection sampling of draft tokens, recursively over siblings. C++17.
#pragma once

#include "specula/accept/rules/verifier.hpp"

namespace specula::rules {

/// See specula::Rejection, and specula::Lenient for a `lenience` above 1: p is multiplied by it where it is
/// compared with q. Requires lenience 1 of a verifier whose accept_chain() accepts nodes.
/// **Draws.** As there. **Cost.** As there. **Throws.** Nothing. **Source.** As there.
template <class Verifier>
SPECULA_HD void rejection(Verifier& verifier, double lenience = 1) {
  NodeId at = verifier.accept_chain();  // for a tree: the root
  int depth = at;
  for (; at != kNoParent && verifier.ok(); ++depth) {
    const NodeId from = at;
    const auto& distribution = verifier.distribution(from, depth);
    if (!verifier.ok()) break;
    bool rejected = false;
    at = kNoParent;
    for (NodeId c = verifier.next_child(from, from); c != kNoParent; c = verifier.next_child(from, c)) {
      const double target_prob = rejected ? verifier.residual_prob(c) : verifier.target_prob(distribution, c);
      if (verifier.accept(lenience * target_prob / verifier.draft_prob(c), c, depth + 1)) {
        at = c;
        break;
      }
      if (!rejected) verifier.start_residual(from, distribution, 0);
      rejected = true;
      verifier.reject(lenience);
    }
    if (!verifier.ok()) break;
    verifier.put(depth, from,
                 at != kNoParent ? verifier.token(at)
                 : rejected      ? verifier.sample_residual(depth)
                                 : verifier.sample(from, distribution, depth));
  }
  verifier.finish(depth);
}

}  // namespace specula::rules
