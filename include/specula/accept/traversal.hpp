// Traversal verification: verifies a token tree from the leaves to the root.
#pragma once

#include "specula/accept/detail/sequence_verifier.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/rules/traversal.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// A node carries a weight P, the root's being 1; its child c gets P_c = min(1, P p(c) / q(c)). Descends to
/// the leaves first: a leaf is accepted with its weight. If all nodes below a node were rejected: after
/// each rejected child S = sum (P p - q)+, p <- norm((P p - q)+), P <- S / (S + 1 - P) with 0 / 0 = 0;
/// finally the node itself is accepted with the resulting P, and the next token is drawn from the resulting
/// p. q is the child's distribution given its earlier siblings, so the target's distribution is kept with
/// and without replacement and for mixed siblings. On one path it is block verification.
///
/// The shape of the tree may depend on the tokens drawn before, anywhere in the tree: once a subtree is
/// rejected, the remaining p and P carry no information about the tokens in it.
///
/// Cost: one row read per inner node on the way to the first accepted leaf; a rejection reads its parent's
/// row and the draft's again (chosen nodes: one logit). Uniform draws: one `accept` per node tried whose
/// weight is not 0, then one `residual` or, after a leaf, `sample`. Source: Weng et al. 2025 (traversal
/// verification), on one path Sun et al. 2024 (block verification).
struct Traversal {
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    target.check_for("Traversal", tree);
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::traversal(verifier);
  }
};

}  // namespace specula
