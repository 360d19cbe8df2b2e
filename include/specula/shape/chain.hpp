// Chain of draft tokens: the proposal of speculative decoding without a tree.
#pragma once

#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/concepts.hpp"
#include "specula/shape/detail/chain_growth.hpp"

namespace specula {

/// A path of at most `length` draft tokens. Drafters without rows give their token in every mode; the chain
/// ends where they have none. Uniform draws per draft token: one `draft` when sampled, the `noise` of its
/// position when shared. Cost per draft token: one draft call, and a draw_by_noise when shared. Source:
/// Leviathan et al. 2023.
template <Draw mode = Draw::greedy>
struct Chain {
  static constexpr ProposalKind kind = kind_of_chain(mode);

  std::int32_t length = 4;
  /// Ends the chain *after* a draft token whose confidence is below this (0: never): its softmax probability
  /// at temperature 1 if greedy, its probability under the distribution it was drawn from if sampled, the
  /// drafter's confidence if that has no rows. Leaving that draft token out would bias the text, since the
  /// decision depends on the draw.
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
