// SPDX-License-Identifier: MIT
// Vertical cascade: a drafter reviews a cheaper drafter's tokens instead of drafting one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include "specula/base/fields.hpp"
#include "specula/draft/stack.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/shape/cascade.hpp"
#include "specula/shape/detail/candidates.hpp"

namespace specula {

///   specula::Vertical<2> shape{.reviews = 2, .length = 6, .lenience = 2};  // over a Stack of two
///
/// The first drafter of a Stack reviews `reviews` proposals, one after the other; the results are the chain.
/// Each proposal comes from the drafters below in the same way, with one review each; the last drafter drafts
/// `length` tokens. So a proposal costs one call of each reviewer, which turns it into 1 to (draft tokens +
/// 1) tokens. With `lenience` above 1 a reviewer accepts more; the resulting distribution is recorded, so the
/// target's verification is exact at any lenience. Copied draft tokens (Max-Gram) are reviewed with lenience
/// 1.
/// **Draws.** If sampled, one `draft` per draft token; per review at most a `review_accept` and a
/// `review_residual`.
/// **Cost.** At most `reviews` calls of each reviewer and `reviews * length` draft tokens.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafters and `tree`.
/// **Source.** Cascade Speculative Drafting (Chen et al. 2024), section 3.1.
template <std::size_t drafters = 2, Draw mode = Draw::greedy>
struct Vertical {
  static_assert(drafters >= 2, "a review needs a reviewer and a drafter");
  static_assert(mode != Draw::shared, "cascades choose or draw their draft tokens");
  static constexpr ProposalKind kind = kind_of_chain(mode);  ///< how its draft tokens are drawn

  std::int32_t reviews = 1;         ///< by the first drafter, per round
  std::int32_t length = 4;          ///< draft tokens of the last drafter, per review
  double lenience = 1;              ///< of the reviews, in [1, 1e30]
  detail::ReviewScratch work = {};  ///< workspace

  /// How large its proposals get.
  NodeCounts nodes() const {
    return {
        detail::node_count(1 + std::int64_t{reviews} * (length + static_cast<std::int64_t>(drafters) - 1))};
  }
  /// Throws std::invalid_argument if a number is negative or too large, if they give too many nodes, or if
  /// lenience is not in [1, 1e30].
  void validate() const {
    detail::expect_in("Vertical::reviews", reviews, 0, detail::kMaxDraftTokens);
    detail::expect_in("Vertical::length", length, 0, detail::kMaxDraftTokens);
    detail::expect_in("Vertical::lenience", lenience, 1.0, detail::kMaxLenience);
    detail::expect_nodes("Vertical", *this);
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& = {}) { work.reserve(static_cast<std::int32_t>(drafters) - 1, nodes().most); }

  /// Grows `tree` from its root; see ProposalShape.
  template <detail::ReviewingStackOf<drafters> D, RandomSource C>
  SPECULA_STEPS propose(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    if (!work.ready(drafters - 1, nodes().most)) reserve();
    ProposeContext inner = round;
    inner.cost_model = nullptr;  // it models acceptance by the target, not by a reviewer
    for (std::int32_t r = 0; r < reviews && tree.room() > 0; ++r) {
      if (round.ends_text(tree, tree.size() - 1)) co_return;
      const bool pays =
          co_await round.call_pays(tree, {.reach = round.reach(tree, tree.size() - 1), .nodes = tree.size()});
      if (!pays) co_return;
      co_await hand_up<0>(stack, inner, tree, rng);
    }
  }

  /// (drafters - 1) the counts of each reviewer so far.
  std::span<const Reviews> reviewed() const { return work.counts; }

 private:
  /// Appends one proposal of the i-th drafter.
  template <std::size_t i, class D, class C>
  SPECULA_STEPS hand_up(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    if constexpr (i + 1 == drafters) {
      co_await detail::grow<mode>(stack.template get<i>(), round, length, tree, rng);
    } else {
      const NodeId base = tree.size() - 1;
      // Reviewed all the same: see Cascade.
      const std::exception_ptr failure = co_await detail::Failure(hand_up<i + 1>(stack, round, tree, rng));
      co_await detail::review<mode>(stack.template get<i>(), round, base, lenience, tree, rng, work,
                                    work.counts[i]);
      if (failure) std::rethrow_exception(failure);
    }
  }
};

}  // namespace specula
