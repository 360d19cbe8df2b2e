// Exact-match verification: samples from the target and accepts a draft token that equals the sample.
#pragma once

#include "specula/accept/detail/sequence_verifier.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/rules/matching.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// Draws y ~ p after the root; descends to the child y if there is one, else emits y; and so on from there.
/// Never reads q, so it keeps the target's distribution for every proposal; for deterministic ones no rule
/// accepts more. The same seed gives the same text as plain sampling. Cost: one row read per node of the
/// accepted path. Uniform draws: one `sample` per token.
struct SampleAndMatch {
  static constexpr bool lossless_for(ProposalKind) { return true; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    (target.check)(tree);
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::sample_and_match(verifier);
  }
};

}  // namespace specula
