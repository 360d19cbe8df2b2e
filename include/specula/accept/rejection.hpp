// Rejection sampling of draft tokens, recursively over siblings.
#pragma once

#include "specula/accept/detail/sequence_verifier.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/rules/rejection.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// Tries children in drawing order: accepts x with probability min(1, p(x) / q(x)), else p <- norm((p - q)+)
/// and tries the next; if all are rejected, draws the next token from the remaining p. q is the child's
/// distribution given its earlier siblings, as the tree recorded it, so the target's distribution is kept
/// with and without replacement and for mixed siblings. On one path it is token-level speculative sampling
/// (Leviathan et al. 2023; Chen et al. 2023); over siblings it is the rule of SpecInfer and Sequoia. Cost:
/// one row read per node of the accepted path; a rejection reads the target's and the draft's row again.
/// Uniform draws: one `accept` per node tried, then one `residual` or, where nothing was rejected, `sample`.
struct Rejection {
  static constexpr bool lossless_for(ProposalKind kind) { return kind != ProposalKind::shared; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    target.check_for("Rejection", tree);
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::rejection(verifier);
  }
};

}  // namespace specula
