// What a rule decides about a proposal.
#pragma once

#include <vector>

#include "rows.hpp"

namespace specula {

/// The accepted path, root first, and the one token that follows it. The tokens of a round are those of
/// path[1..] and `next`.
struct Verdict {
  std::vector<NodeId> path;  // (accepted + 1) node ids, path[0] == 0
  Token next = kNoToken;

  /// Guesses that stay.
  std::int32_t accepted() const { return static_cast<std::int32_t>(path.size()) - 1; }
  void clear() {
    path.assign(1, 0);
    next = kNoToken;
  }
};

}  // namespace specula
