// How the tokens of a proposal were drawn: what decides which acceptance rules keep the target's
// distribution.
#pragma once

#include <cstdint>

#include "specula/base/compiler_options.hpp"

namespace specula {

/// How the children of a proposal's nodes were drawn. A rule keeps the target's distribution only for the
/// kinds it knows.
enum class ProposalKind : std::uint8_t {
  deterministic,     // chosen: the same tokens whatever the uniform draws
  sampled,           // one path, each token drawn from the distribution recorded for it
  sampled_iid,       // siblings drawn independently from one distribution
  sampled_distinct,  // siblings drawn without replacement
  mixed,             // anything else whose distributions are recorded
  shared,            // drawn with the noise that the target's own token is drawn with
};

/// Whether a shape that declares `declared` may give a proposal that was drawn as `drawn`: one path of a tree
/// of siblings, point masses (n-grams, temperature 0) anywhere, and under `mixed` whatever is recorded and
/// has uniform draws of its own.
constexpr bool covers(ProposalKind declared, ProposalKind drawn) {
  const bool siblings = declared == ProposalKind::sampled_iid || declared == ProposalKind::sampled_distinct;
  return declared == drawn || drawn == ProposalKind::deterministic ||
         (declared == ProposalKind::mixed && drawn != ProposalKind::shared) ||
         (siblings && drawn == ProposalKind::sampled);
}

}  // namespace specula
