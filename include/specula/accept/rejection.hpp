// Rejection sampling of draft tokens, recursively over siblings.
#pragma once

#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// Tries children in drawing order: accepts x with probability min(1, p(x) / q(x)), else p <- norm((p -
/// q)+) and tries the next; if all are rejected, draws the next token from what remains of p. q is the
/// child's distribution given its earlier siblings, as the tree recorded it, so the target's distribution
/// is kept with and without replacement and for mixed siblings. On one path it is token-level speculative
/// sampling (Leviathan et al. 2023; Chen et al. 2023); over siblings it is the rule of SpecInfer and
/// Sequoia. Cost: one row read per node of the accepted path; a rejection reads the target's and the
/// draft's row again. Uniform draws: one `accept` per node tried, then one `residual` or, where nothing was
/// rejected, `sample`.
struct Rejection {
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    target.check_for("Rejection", tree);
    out.clear();
    for (NodeId at = 0; at != kNoParent;) {
      const NodeId from = at;
      const Distribution distribution = target[from];
      detail::Residual* left = nullptr;
      at = kNoParent;
      tree.children(from, [&](NodeId c) {
        const Token token = tree.token(c);
        const double target_prob = left ? left->prob(token) : distribution(token);
        if (rng.accept(target_prob / tree.draft_prob(c, token), tree.accept_key(c))) {
          at = c;
          return false;
        }
        if (!left) left = &target.residual(distribution);
        left->reject(tree, c);
        return true;
      });
      if (at != kNoParent)
        out.accepted.push_back(at);
      else if (left)
        out.next_token = rng.draw(left->measured(), tree.residual_key(from));
      else
        out.next_token = target.sample(distribution, tree.sample_key(from), rng);
    }
  }
};

}  // namespace specula
