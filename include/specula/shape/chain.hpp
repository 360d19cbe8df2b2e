// A chain: one guess after the other.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../concepts.hpp"

namespace specula {

/// How a shape takes a token from a draft row: the largest logit, a draw, or a draw with the noise that
/// SharedNoise draws the target's token with.
enum class Draw : std::uint8_t { greedy, sampled, shared };

/// At most `length` guesses, each after the last. Drafters without rows give their token whatever the mode;
/// the chain ends where they have none. Coins: one `draft` a guess when sampled, the `noise` of its position
/// when shared. Cost: one draft call a guess; when shared a draw_by_noise. Leviathan et al. 2023.
template <Draw mode = Draw::greedy>
struct Chain {
  static constexpr DraftLaw law = mode == Draw::greedy    ? DraftLaw::deterministic
                                  : mode == Draw::sampled ? DraftLaw::sampled
                                                          : DraftLaw::shared;

  std::int32_t length = 4;
  /// Ends the chain *after* a guess whose draft probability is below this (0: never): under softmax at
  /// temperature 1 for a greedy guess, under the law it was drawn from for a sampled one. Leaving that guess
  /// out would bias the text: what is dropped would depend on what was drawn.
  float exit_below = 0.0f;

  std::int32_t max_nodes() const { return 1 + length; }

  template <Drafter D, ChanceSource C>
    requires(mode != Draw::shared || NoiseSource<C>)
  void propose(D& drafter, const Round& round, TokenTree& tree, C& chance) const {
    drafter.sync(round.context, {});
    double reach = 1;           // chance that the chain stays up to its last node
    NodeId parent = kNoParent;  // of the node to run, in the drafter's numbers, which are the tree's
    const bool chooses = mode == Draw::greedy || round.params.greedy();
    for (NodeId at = 0; at < length && tree.room() > 0; parent = at++) {
      if (!(chooses ? round.drafts_to_choose(reach, tree) : round.drafts_on(reach, tree))) return;
      const Token token = tree.token(at);
      const auto rows = drafter.extend({&token, 1}, {&parent, 1});
      if constexpr (std::is_same_v<std::remove_const_t<decltype(rows)>, PointMasses>) {
        if (rows.tokens.empty() || rows.tokens[0] == kNoToken) return;
        if (chooses && !round.keeps(reach, 1.0, tree)) return;
        tree.choose(at, rows.tokens[0], 1.0f);
      } else if (chooses) {
        const auto top = tree.top(at, rows.row(0));
        if (!round.keeps(reach, top.prob, tree)) return;
        tree.choose(at, top.token, static_cast<float>(top.prob));
      } else if constexpr (mode == Draw::shared) {
        tree.draw_shared(at, tree.store(at, rows.row(0), round.params), chance);
      } else {
        tree.draw(at, tree.store(at, rows.row(0), round.params), chance);
      }
      reach *= round.chance(static_cast<double>(tree.confidence(at + 1)));
      if (tree.confidence(at + 1) < exit_below) return;
    }
  }
};

}  // namespace specula
