// The loop of every rule that emits a token and continues while it matches a draft token.
#pragma once

#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula::detail {

/// From the root: gets the text's next token from `token_after(node)` and descends to the first child with
/// that token, while there is one.
template <class TokenAfter>
void accept_matching(const TokenTree& tree, VerifyResult& out, TokenAfter token_after) {
  out.clear();
  for (NodeId at = 0; at != kNoParent;) {
    out.next_token = token_after(at);
    const NodeId from = at;
    at = kNoParent;
    tree.children(from, [&](NodeId c) {
      if (tree.token(c) != out.next_token) return true;
      at = c;
      return false;
    });
    if (at != kNoParent) out.accepted.push_back(at);
  }
}

}  // namespace specula::detail
