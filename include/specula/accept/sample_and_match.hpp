// Sample from the target; go on while a draft token is what was sampled.
#pragma once

#include "specula/accept/detail/accept_matching.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// y ~ p after the root; if y is among the draft tokens descend, else emit it. Never looks at q, so it keeps
/// the target's distribution for every proposal; for deterministic ones no rule accepts more. Same seed, same
/// text as plain sampling. Cost: one read of a row for each node of the accepted path. Uniform draws: one
/// `sample` a token.
struct SampleAndMatch {
  static constexpr bool lossless_for(ProposalKind) { return true; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    (target.check)(tree);
    detail::accept_matching(tree, out,
                            [&](NodeId at) { return target.sample(target[at], tree.sample_key(at), rng); });
  }
};

}  // namespace specula
