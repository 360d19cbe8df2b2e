// Rejection sampling, recursively over siblings.
#pragma once

#include "../target_laws.hpp"
#include "../token_tree.hpp"
#include "../verdict.hpp"

namespace specula {

/// Children in the order of their drawing: accept x with probability min(1, p(x) / q(x)), else p <- norm((p -
/// q)+) and on to the next; when none stays, draw from what is left of p. q is the child's law given its
/// earlier siblings, as the tree recorded it, so the target's law is kept with and without replacement and
/// for mixed siblings. On one path it is token-level speculative sampling (Leviathan et al. 2023; Chen et al.
/// 2023); over siblings SpecInfer's and Sequoia's. Cost: one read of a row for each node of the accepted
/// path; a rejection reads the target's and the draft's row again. Coins: one `accept` a node tried, then one
/// `residual` or, where nothing was rejected, `sample`.
struct Rejection {
  static constexpr bool exact_for(DraftLaw law) { return law != DraftLaw::shared; }

  template <class Chance>
  void(verify)(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    target.check_for("Rejection", tree);
    out.clear();
    for (NodeId at = 0; at != kNoParent;) {
      const NodeId from = at;
      const RowLaw law = target[from];
      detail::Residual* left = nullptr;
      at = kNoParent;
      tree.children(from, [&](NodeId c) {
        const Token token = tree.token(c);
        const double target_prob = left ? left->prob(token) : law(token);
        if (chance.accept(target_prob / tree.draft_prob(c, token), tree.accept_site(c))) {
          at = c;
          return false;
        }
        if (!left) left = &target.residual(law);
        left->reject(tree, c);
        return true;
      });
      if (at != kNoParent)
        out.path.push_back(at);
      else if (left)
        out.next = chance.draw(left->measured(), tree.residual_site(from));
      else
        out.next = target.sample(law, tree.sample_site(from), chance);
    }
  }
};

}  // namespace specula
