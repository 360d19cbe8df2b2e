// How chains take their tokens.
#pragma once

#include <cstdint>

#include "../token_tree.hpp"

namespace specula {

/// How a shape takes a token from a draft row: the largest logit, a draw, or a draw with the noise that
/// SharedNoise draws the target's token with.
enum class Draw : std::uint8_t { greedy, sampled, shared };

/// The draft law of a chain whose tokens are taken so.
constexpr DraftLaw law_of_chain(Draw mode) {
  return mode == Draw::greedy    ? DraftLaw::deterministic
         : mode == Draw::sampled ? DraftLaw::sampled
                                 : DraftLaw::shared;
}

}  // namespace specula
