// Draw from the target with the noise that the draft drew with; go on while a draft token is what was drawn.
#pragma once

#include "specula/accept/detail/accept_matching.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/random_source.hpp"
#include "specula/proposal/token_tree.hpp"
#include "specula/verify_result.hpp"

namespace specula {

/// SampleAndMatch by noise: the token after a node is the argmax of log p(x) + Gumbel noise(position, x), and
/// a shape that draws by TokenTree::draw_shared takes the argmax of log q(x) + the same noise. The two agree
/// with probability at least (1 - TV) / (1 + TV), always where q = p; independent draws agree with sum p q
/// only. One seed, one text, whichever drafter and shape: also without a drafter, and for proposals that are
/// chosen or drawn by other uniform draws. (Not the text of SampleAndMatch, whose uniform draws are others.)
/// Daliri, Musco, Suresh 2024.
///
/// Exact for every proposal, since it never looks at q: a position's token is a function of the tokens before
/// it and of the position's own noise, and no draft token changes that. Rules that look at q must not be
/// given proposals drawn so: noise comes back in the next round at the positions that this one did not reach,
/// and it is not fresh any more if it has had a part in where this round ended (block and traversal
/// verification decide from the leaf to the root) or in what the next one proposes
/// (tests/accept/gumbel_coupling.cpp shows both).
///
/// Cost: one read of a row and one draw_by_noise for each node of the accepted path. Uniform draws: `noise`,
/// a word a token.
struct GumbelCoupling {
  static constexpr bool lossless_for(ProposalKind) { return true; }

  template <class Rng>
  void(verify)(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    static_assert(detail::explain_random_source<Rng, true>());
    (target.check)(tree);
    detail::accept_matching(tree, out, [&](NodeId at) {
      const Distribution distribution = target[at];
      return distribution.is_point() ? distribution.point
                                     : rng.draw_by_noise(target.weights(distribution), tree.noise_key(at));
    });
  }
};

}  // namespace specula
