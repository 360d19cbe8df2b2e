// Draw from the target with the noise that the draft drew with; go on while a guess is what was drawn.
#pragma once

#include "../concepts.hpp"
#include "../detail/explain.hpp"
#include "../detail/follow.hpp"
#include "../target_laws.hpp"
#include "../token_tree.hpp"
#include "../verdict.hpp"

namespace specula {

/// SampleAndMatch by noise: the token after a node is the argmax of log p(x) + Gumbel noise(position, x), and
/// a shape that draws by TokenTree::draw_shared takes the argmax of log q(x) + the same noise. The two agree
/// with probability at least (1 - TV) / (1 + TV), always where q = p; independent draws agree with sum p q
/// only. One seed, one text, whichever drafter and shape: also without a drafter, and for proposals that are
/// chosen or drawn by other coins. (Not the text of SampleAndMatch, whose coins are others.) Daliri, Musco,
/// Suresh 2024.
///
/// Exact for every proposal, since it never looks at q: a position's token is a function of the tokens before
/// it and of the position's own noise, and no guess changes that. Rules that look at q must not be given
/// proposals drawn so: noise comes back in the next round at the positions that this one did not reach, and
/// it is not fresh any more if it has had a part in where this round ended (block and traversal verification
/// decide from the leaf to the root) or in what the next one proposes (tests/accept/shared_noise.cpp shows
/// both).
///
/// Cost: one read of a row and one draw_by_noise for each node of the accepted path. Coins: `noise`, a word a
/// token.
struct SharedNoise {
  static constexpr bool exact_for(DraftLaw) { return true; }

  template <class Chance>
  void(verify)(const TokenTree& tree, const TargetLaws& target, Chance& chance, Verdict& out) const {
    static_assert(detail::explain_chance<Chance, true>());
    (target.check)(tree);
    detail::follow(tree, out, [&](NodeId at) {
      const RowLaw law = target[at];
      return law.is_point() ? law.point : chance.draw_by_noise(target.weights(law), tree.noise_site(at));
    });
  }
};

}  // namespace specula
