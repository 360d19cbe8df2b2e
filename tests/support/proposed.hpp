// SPDX-License-Identifier: MIT
// What a shape proposes after one text, over a drafter of given rows.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include <specula/distribution/random_source.hpp>

#include "scripted_drafter.hpp"

namespace specula_test {

inline const Text kContext = {0, 1, 0};
inline constexpr specula::Token kRoot = 1;
inline const Text kText = {0, 1, 0, kRoot};

/// By a shape that draws nothing.
template <class Shape>
void propose(specula::ProposalBuilder& tree, ScriptedDrafter& drafter, Shape&& shape,
             std::int32_t limit = 1000) {
  NoUniforms none;
  tree.reset(kRoot, 3, limit);
  shape.propose(drafter, specula::ProposeContext{kContext, {}, limit}, tree, none).run();
}
/// By a shape that draws.
template <class Shape>
void propose_drawn(specula::ProposalBuilder& tree, ScriptedDrafter& drafter, Shape&& shape,
                   std::uint64_t seed, const specula::SamplingParams& params = {},
                   std::int32_t limit = 1000) {
  specula::PhiloxRandom rng(seed);
  tree.reset(kRoot, 3, limit);
  shape.propose(drafter, specula::ProposeContext{kContext, params, limit}, tree, rng).run();
}

/// The `most` likeliest of all draft tokens.
inline std::vector<int> best(const std::vector<DraftToken>& draft_tokens, int most) {
  std::vector<int> all(draft_tokens.size());
  std::iota(all.begin(), all.end(), 0);
  return likeliest(draft_tokens, all, most);
}

}  // namespace specula_test
