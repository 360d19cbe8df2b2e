// SPDX-License-Identifier: MIT
// Exact-match verification: the loop of greedy, sample-and-match and Gumbel coupling rules. C++17.
#pragma once

#include "specula/accept/rules/verifier.hpp"

namespace specula::rules {

/// From the root: takes the next token from `token_after(node, depth)` and descends to the first child with
/// that token, until there is none.
template <class Verifier, class TokenAfter>
SPECULA_HD void accept_matching(Verifier& verifier, TokenAfter token_after) {
  int depth = 0;
  for (NodeId at = 0; at != kNoParent && verifier.ok(); ++depth) {
    const Token next = token_after(at, depth);
    if (!verifier.ok()) break;
    verifier.put(depth, at, next);
    at = verifier.child_with(at, next);
  }
  verifier.finish(depth);
}

/// See specula::Greedy.
/// **Draws.** Nothing. **Cost.** One argmax() a path node. **Throws.** Nothing. **Source.** As there.
template <class Verifier>
SPECULA_HD void greedy(Verifier& verifier) {
  accept_matching(verifier, [&](NodeId at, int depth) { return verifier.argmax(at, depth); });
}

/// See specula::SampleAndMatch.
/// **Draws.** As drawn(). **Cost.** One drawn() a path node. **Throws.** Nothing. **Source.** As there.
template <class Verifier>
SPECULA_HD void sample_and_match(Verifier& verifier) {
  accept_matching(verifier, [&](NodeId at, int depth) { return verifier.drawn(at, depth); });
}

}  // namespace specula::rules
