// Greedy verification: a draft token stays iff it is the target's first largest logit.
#pragma once

#include "specula/accept/detail/accept_matching.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// Text identical to greedy decoding, whatever the sampling parameters say and however the proposal was
/// drawn. Cost: one read of a row for each node of the accepted path. Uniform draws: none. Leviathan et al.
/// 2023, temperature 0.
struct Greedy {
  static constexpr bool lossless_for(ProposalKind) { return true; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng&, VerifyResult& out) const {
    (target.check)(tree);
    detail::accept_matching(tree, out, [&](NodeId at) { return target.argmax(at); });
  }
};

}  // namespace specula
