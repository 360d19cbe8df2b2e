// The result of verification: accepted draft tokens and the next token.
#pragma once

#include <vector>

#include "specula/rows.hpp"

namespace specula {

/// The accepted path, root first, and the token that follows it. A round emits the tokens of
/// `accepted[1..]` and `next_token`.
struct VerifyResult {
  std::vector<NodeId> accepted;  ///< (accepted_count() + 1) node ids, accepted[0] == 0
  Token next_token = kNoToken;   ///< follows the path

  /// Number of accepted draft tokens.
  std::int32_t accepted_count() const { return static_cast<std::int32_t>(accepted.size()) - 1; }
  /// The root alone, and no next token.
  void clear() {
    accepted.assign(1, 0);
    next_token = kNoToken;
  }
};

}  // namespace specula
