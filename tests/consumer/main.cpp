// SPDX-License-Identifier: MIT
#include <specula/specula.hpp>

// A tree of one draft token, from the facade alone.
int main() {
  specula::ProposalBuilder tree(/*vocab=*/8, /*max_nodes=*/4, /*stored_rows=*/0);
  tree.reset(/*root=*/3, /*position=*/0);
  const specula::NodeId draft_token = tree.choose(0, /*token=*/5, /*confidence=*/1.0f);
  return tree.size() == 2 && tree.token(draft_token) == 5 && tree.parent(draft_token) == 0 ? 0 : 1;
}
