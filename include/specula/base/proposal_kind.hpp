// SPDX-License-Identifier: MIT
// How draft tokens are drawn, which decides the acceptance rules that keep the target's distribution.
#pragma once

#include <cstdint>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// How the children of a proposal's nodes were drawn. A rule keeps the target's distribution only for the
/// kinds in its lossless_for().
enum class ProposalKind : std::uint8_t {
  deterministic,     // chosen: the same tokens whatever the uniform draws
  sampled,           // one path, each token drawn from the distribution recorded for it
  sampled_iid,       // siblings drawn independently from one distribution
  sampled_distinct,  // siblings drawn without replacement
  mixed,             // anything else whose distributions are recorded
  shared,            // drawn with the noise that also draws the target's token
};

/// Whether a shape of kind `declared` may return a proposal of kind `drawn`. A kind with siblings covers a
/// single path, every kind covers point masses (n-grams, temperature 0), and `mixed` covers everything except
/// `shared`.
constexpr bool covers(ProposalKind declared, ProposalKind drawn) {
  const bool siblings = declared == ProposalKind::sampled_iid || declared == ProposalKind::sampled_distinct;
  return declared == drawn || drawn == ProposalKind::deterministic ||
         (declared == ProposalKind::mixed && drawn != ProposalKind::shared) ||
         (siblings && drawn == ProposalKind::sampled);
}

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
