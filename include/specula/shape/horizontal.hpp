// SPDX-License-Identifier: MIT
// Horizontal cascade: the first draft tokens come from the best drafter, later ones from cheaper drafters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/draft/stack.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/detail/candidates.hpp"

namespace specula {

///   specula::Horizontal<2> shape{.counts = {2, 6}};  // over a Stack of two
///
/// A chain of counts[0] draft tokens of a Stack's first drafter, then counts[1] of its second, and so on: a
/// draft token can be accepted only after all before it, so quality matters most in early ones. If a drafter
/// has no further draft token, the next one continues.
/// **Draws.** Per draft token one `draft` if sampled. **Cost.** One call of its drafter per draft token.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafters and `tree`.
/// **Source.** Cascade Speculative Drafting (Chen et al. 2024), section 3.2.
template <std::size_t drafters = 2, Draw mode = Draw::greedy>
struct Horizontal {
  static_assert(mode != Draw::shared, "cascades choose or draw their draft tokens");
  static constexpr ProposalKind kind = kind_of_chain(mode);  ///< how its draft tokens are drawn

  std::array<std::int32_t, drafters> counts{};  ///< draft tokens per drafter

  /// How large its proposals get.
  NodeCounts nodes() const {
    std::int64_t most = 1;
    for (const std::int32_t count : counts) most += count;
    return {detail::node_count(most)};
  }

  /// Throws std::invalid_argument if a count is negative or too large, or if their sum is.
  void validate() const {
    detail::expect_all_in("Horizontal::counts", counts, 0, detail::kMaxDraftTokens);
    detail::expect_nodes("Horizontal", *this);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <detail::StackOf<drafters> D, RandomSource C>
  Steps propose(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    return grow<0>(stack, round, tree, rng);
  }

 private:
  template <std::size_t i, class D, class C>
  SPECULA_STEPS grow(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    co_await detail::grow<mode>(stack.template get<i>(), round, counts[i], tree, rng);
    if constexpr (i + 1 < drafters) co_await grow<i + 1>(stack, round, tree, rng);
  }
};

}  // namespace specula
