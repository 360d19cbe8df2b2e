// How a chain draws its tokens: greedy, sampled, or with shared noise.
#pragma once

#include <cstdint>

#include "specula/proposal_kind.hpp"

namespace specula {

/// How a shape takes a token from a draft row: the largest logit, a draw, or a draw with the noise that
/// GumbelCoupling uses for the target's token.
enum class Draw : std::uint8_t { greedy, sampled, shared };

/// The proposal kind of a chain drawn this way.
constexpr ProposalKind kind_of_chain(Draw mode) {
  return mode == Draw::greedy    ? ProposalKind::deterministic
         : mode == Draw::sampled ? ProposalKind::sampled
                                 : ProposalKind::shared;
}

}  // namespace specula
