// How the tokens of a proposal were drawn: what decides which acceptance rules keep the target's law.
#pragma once

#include <cstdint>

#include "detail/compiler_options.hpp"

namespace specula {

/// How the children of a proposal's nodes were drawn. A rule keeps the target's law only for the laws it
/// knows.
enum class DraftLaw : std::uint8_t {
  deterministic,     // chosen: the same tokens whatever the coins
  sampled,           // one path, each token drawn from the law recorded for it
  sampled_iid,       // siblings drawn independently from one law
  sampled_distinct,  // siblings drawn without replacement
  mixed,             // anything else whose laws are recorded
  shared,            // drawn with the noise that the target's own token is drawn with
};

/// Whether a shape that declares `declared` may give a proposal that was drawn as `drawn`: one path of a tree
/// of siblings, point masses (n-grams, temperature 0) anywhere, and under `mixed` whatever is recorded and
/// has coins of its own.
constexpr bool covers(DraftLaw declared, DraftLaw drawn) {
  const bool siblings = declared == DraftLaw::sampled_iid || declared == DraftLaw::sampled_distinct;
  return declared == drawn || drawn == DraftLaw::deterministic ||
         (declared == DraftLaw::mixed && drawn != DraftLaw::shared) ||
         (siblings && drawn == DraftLaw::sampled);
}

}  // namespace specula
