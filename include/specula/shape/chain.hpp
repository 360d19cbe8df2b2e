// A chain: one draft token after the other.
#pragma once

#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/concepts.hpp"
#include "specula/shape/detail/chain_growth.hpp"

namespace specula {

/// At most `length` draft tokens, each after the last. Drafters without rows give their token whatever the
/// mode; the chain ends where they have none. Uniform draws: one `draft` a draft token when sampled, the
/// `noise` of its position when shared. Cost: one draft call a draft token; when shared a draw_by_noise.
/// Leviathan et al. 2023.
template <Draw mode = Draw::greedy>
struct Chain {
  static constexpr ProposalKind kind = kind_of_chain(mode);

  std::int32_t length = 4;
  /// Ends the chain *after* a draft token whose draft probability is below this (0: never): under softmax at
  /// temperature 1 for a greedy draft token, under the distribution it was drawn from for a sampled one, what
  /// the drafter believes where it has no rows. Leaving that draft token out would bias the text: what is
  /// dropped would depend on what was drawn.
  float exit_below = 0.0f;

  std::int32_t max_nodes() const { return detail::node_count(std::int64_t{1} + length); }
  /// Throws std::invalid_argument unless length is in [0, 2^24 - 2] and exit_below in [0, 1].
  void validate() const {
    detail::expect_in("Chain::length", length, 0, detail::kMaxDraftTokens);
    detail::expect_in("Chain::exit_below", exit_below, 0.0f, 1.0f);
  }

  template <Drafter D, RandomSource C>
    requires(mode != Draw::shared || NoiseSource<C>)
  void propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    detail::grow<mode>(drafter, round, length, tree, rng, exit_below);
  }
};

}  // namespace specula
