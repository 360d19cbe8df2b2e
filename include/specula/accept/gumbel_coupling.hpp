// SPDX-License-Identifier: MIT
// Gumbel coupling: draft and target sample with shared Gumbel noise, so that they often draw the same token.
#pragma once

#include "specula/accept/exact_rules.hpp"
#include "specula/accept/rules/matching.hpp"
#include "specula/accept/target_distributions.hpp"
#include "specula/base/rows.hpp"
#include "specula/distribution/random_source.hpp"
#include "specula/proposal/token_tree.hpp"

namespace specula {

///   specula::Speculator run{specula::TreeVerifier{target, specula::GumbelCoupling{}},
///                           specula::ModelDrafter{draft}, specula::Chain<specula::Draw::shared>{.length = 4}};
///
/// SampleAndMatch with shared noise: the token after a node is the argmax of log p(x) + Gumbel
/// noise(position, x), and a shape that draws by ProposalBuilder::draw_shared takes the argmax of log q(x) +
/// the same noise. The two agree with probability at least (1 - TV) / (1 + TV), always where q = p;
/// independent draws agree with probability sum p q only. One seed gives one text, whatever the drafter and
/// shape: also without a drafter, and for proposals that are chosen or drawn by other uniform draws. (It is
/// not the text of SampleAndMatch, which uses other uniform draws.) Exact for every proposal, since it never
/// reads q: a position's token is a function of the tokens before it and of the position's own noise only,
/// whatever the draft tokens. Rules that read q must not be given such proposals: the noise recurs in the
/// next round at the positions that this one did not reach, and it is no longer fresh if it influenced where
/// this round ended (block and traversal verification decide from the leaf to the root) or what the next one
/// proposes (tests/accept/gumbel_coupling.cpp shows both).
/// **Draws.** `noise`, one word per token.
/// **Cost.** One row read and one draw_by_noise per node of the accepted path.
/// **Throws.** decide(): std::runtime_error for a bad row. **Source.** Daliri, Musco, Suresh 2024.
struct GumbelCoupling {
  static constexpr bool lossless_for(ProposalKind) { return true; }  ///< Lossless for every kind.

  /// Verifies `tree` and overwrites `out`; see AcceptanceRule.
  template <class Rng>
  void decide(const TokenTree& tree, const TargetDistributions& target, Rng& rng, VerifyResult& out) const {
    static_assert(detail::explain_random_source<Rng, true>());
    detail::SequenceState sequence(tree, out);
    rules::accept_matching(sequence, [&](NodeId at, int) {
      const Distribution distribution = target[at];
      return distribution.is_point() ? distribution.point
                                     : rng.draw_by_noise(target.weights(distribution), tree.noise_key(at));
    });
  }
};

}  // namespace specula
