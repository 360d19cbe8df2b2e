// How chains take their tokens.
#pragma once

#include <cstdint>

#include "specula/proposal/token_tree.hpp"

namespace specula {

/// How a shape takes a token from a draft row: the largest logit, a draw, or a draw with the noise that
/// GumbelCoupling draws the target's token with.
enum class Draw : std::uint8_t { greedy, sampled, shared };

/// The proposal kind of a chain whose tokens are taken so.
constexpr ProposalKind kind_of_chain(Draw mode) {
  return mode == Draw::greedy    ? ProposalKind::deterministic
         : mode == Draw::sampled ? ProposalKind::sampled
                                 : ProposalKind::shared;
}

}  // namespace specula
