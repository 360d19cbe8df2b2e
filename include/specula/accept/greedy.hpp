// Greedy verification: a draft token is accepted iff it is the target's first largest logit.
#pragma once

#include "specula/accept/detail/sequence_verifier.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/rules/matching.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// The text is identical to greedy decoding, whatever the sampling parameters and however the proposal was
/// drawn. Cost: one row read per node of the accepted path. Uniform draws: none. Leviathan et al. 2023,
/// temperature 0.
struct Greedy {
  static constexpr bool lossless_for(ProposalKind) { return true; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    (target.check)(tree);
    detail::SequenceVerifier<Rng> verifier(tree, target, rng, out);
    rules::greedy(verifier);
  }
};

}  // namespace specula
