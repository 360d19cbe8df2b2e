// SPDX-License-Identifier: MIT
// Cascade Speculative Drafting: vertical and horizontal cascades, one inside the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/base/stats.hpp"
#include "specula/draft/stack.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/proposal/review.hpp"
#include "specula/shape/chain.hpp"
#include "specula/shape/detail/candidates.hpp"
#include "specula/shape/detail/cascade_bounds.hpp"

namespace specula {

namespace detail {

/// Working memory and counts of a cascade's reviewers. Allocates in reserve() only.
struct ReviewScratch {
  std::vector<NodeId> line;     // -1, 0, 1, ...: the parents of a chain
  std::vector<Reviews> counts;  // (reviewers)

  bool ready(std::size_t reviewers, std::int32_t nodes) const {
    return counts.size() >= reviewers && line.size() >= static_cast<std::size_t>(nodes);
  }
  void reserve(std::int32_t reviewers, std::int32_t max_nodes) {
    counts.assign(static_cast<std::size_t>(reviewers), {});
    line.resize(static_cast<std::size_t>(max_nodes));
    std::iota(line.begin(), line.end(), kNoParent);
  }
};

/// The rows of `drafter` after `count` nodes of the tree from `first` on.
template <class D>
SPECULA_STEPS ask_into(D& drafter, ProposalBuilder& tree, std::size_t first, std::size_t count, Nodes parents,
                       LogitsView& rows) {
  rows = co_await ask(drafter, tree, tree.tokens().subspan(first, count), parents.first(count));
}

/// `reviewer` verifies all nodes of a chain after `base` in one call. The chain keeps those that it accepts,
/// followed by one token of its own, unless the text ends there. See specula::review. Without room, it does
/// nothing. If the call fails, the reason may be one of the tokens under review, and a review for other
/// tokens only would bias the text; so the rows are then asked for one by one, as far as tokens are accepted,
/// and whether a row fails depends on nothing that it decides about. The failure is rethrown at the end.
template <Draw mode, LogitsDrafter D, RandomSource C>
SPECULA_STEPS review(D& reviewer, const ProposeContext& round, NodeId base, double lenience,
                     ProposalBuilder& tree, C& rng, const ReviewScratch& scratch, Reviews& counts) {
  if (!can_draft(reviewer, round)) co_return;
  const NodeId last = tree.size() - 1;
  const bool ends = round.ends_text(tree, last);  // then it is a draft token, and what follows has no use
  const auto from = static_cast<std::size_t>(base), nodes = static_cast<std::size_t>(last + !ends - base);
  const SamplingParams params = mode == Draw::greedy ? SamplingParams{.temperature = 0} : round.params;
  reviewer.sync(round.committed, tree.tokens().first(from));
  LogitsView rows;
  const std::exception_ptr failure =
      co_await Failure(ask_into(reviewer, tree, from, nodes, scratch.line, rows));
  if (failure) reviewer.sync(round.committed, tree.tokens().first(from));
  ++counts.calls;
  for (NodeId node = base + 1; node <= last || (!ends && tree.room() > 0); ++node) {
    std::int32_t row = node - 1 - base;
    if (failure) {
      const auto at = static_cast<std::size_t>(row);
      co_await ask_into(reviewer, tree, from + at, 1, Nodes(scratch.line).subspan(at), rows);
      row = 0;
    }
    if (node <= last) {
      const bool accepted = specula::review(tree, node, rows.row(row), params, lenience, rng);
      counts.saw(node - 1 - base, accepted);
      if (!accepted) break;
    } else {
      if (params.greedy()) {
        const Top top = tree.top(last, rows.row(row));
        tree.choose(last, top.token, static_cast<float>(top.prob));
      } else {
        tree.draw(last, tree.store(last, rows.row(row), params), rng);
      }
      break;
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

///   specula::Cascade<3> shape{.limits = {{{8, 5, 10}, {0, 1, 10}, {0, 0, 10}}}, .lenience = 3};
///
/// A chain drafted by a Stack of `drafters`, best first, under an upper-triangular table of limits. Row 0:
/// the first drafter works until the chain has limits[0][0] tokens, the second until it has limits[0][0] +
/// limits[0][1], and so on (horizontal). Every drafter but the last works by reviewing proposals that the
/// drafters below it make in the same way under the next row (vertical); the last one drafts limits[n-1][n-1]
/// tokens at a time. Limits count tokens from the start of the row's own proposal; tokens beyond them are
/// kept. A drafter without a draft token ends its turn; one without room for the text has none, and reviews
/// nothing. With `lenience` above 1 a reviewer accepts more, but not of copied tokens, such as Max-Gram's.
/// The distribution of its result is recorded, so the target's verification is exact at any lenience. [base,
/// small, Max-Gram] of the paper: the line above.
/// **Draws.** As Vertical.
/// **Cost.** See study/cascade_model.hpp. Allocates in reserve() only; the tree is the recursion's stack.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafters and `tree`.
/// **Source.** Chen et al. 2024, Algorithm 1, with corrections: see docs/cascades.md.
template <std::size_t drafters, Draw mode = Draw::greedy>
struct Cascade {
  static_assert(drafters >= 1);
  static_assert(mode != Draw::shared, "cascades choose or draw their draft tokens");
  static constexpr ProposalKind kind = kind_of_chain(mode);  ///< how its draft tokens are drawn

  /// In draft tokens; upper triangular. See above.
  std::array<std::array<std::int32_t, drafters>, drafters> limits{};
  double lenience = 1;              ///< of the reviews, in [1, 1e30]
  detail::ReviewScratch work = {};  ///< workspace

  /// How large its proposals get.
  NodeCounts nodes() const {
    std::array<std::int64_t, drafters> bounds;
    detail::cascade_bounds(limits, bounds);
    return {detail::node_count(1 + bounds[0])};
  }
  /// Throws std::invalid_argument if a limit is negative or too large, or not 0 below the diagonal, or
  /// lenience not in [1, 1e30].
  void validate() const {
    for (std::size_t row = 0; row < drafters; ++row)
      for (std::size_t i = 0; i < drafters; ++i)
        if (limits[row][i] < 0 || limits[row][i] > detail::kMaxDraftTokens ||
            (i < row && limits[row][i] != 0))
          throw std::invalid_argument("Cascade::limits[" + detail::number(row) + "][" + detail::number(i) +
                                      "] is " + detail::number(limits[row][i]) + ", must be " +
                                      (i < row ? "0: it is below the diagonal"
                                               : "in [0, " + detail::number(detail::kMaxDraftTokens) + "]"));
    detail::expect_in("Cascade::lenience", lenience, 1.0, detail::kMaxLenience);
    detail::expect_nodes("Cascade", *this);
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& = {}) {
    validate();
    work.reserve(static_cast<std::int32_t>(drafters) - 1, nodes().most);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <detail::ReviewingStackOf<drafters> D, RandomSource C>
  Steps propose(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    if (!work.ready(drafters - 1, nodes().most)) reserve();
    return fill<0, 0>(stack, round, tree, rng, tree.size(), 0);
  }

  /// (drafters - 1) the counts of each reviewer so far.
  std::span<const Reviews> reviewed() const { return work.counts; }

 private:
  static constexpr std::size_t kLast = drafters - 1;

  /// The turns of the drafters from `i` on in a proposal under `row` that begins at node `start`.
  template <std::size_t row, std::size_t i, class D, class C>
  SPECULA_STEPS fill(D& stack, const ProposeContext& round, ProposalBuilder& tree, C& rng, NodeId start,
                     std::int32_t limit) {
    limit += limits[row][i];
    while (tree.size() - start < limit && tree.room() > 0 && !round.ends_text(tree, tree.size() - 1)) {
      const std::int32_t before = tree.size();
      if constexpr (i == kLast) {
        co_await detail::grow<mode>(stack.template get<i>(), round, limits[kLast][kLast], tree, rng);
      } else {
        const bool pays = co_await round.call_pays(
            tree, {.reach = round.reach(tree, tree.size() - 1), .nodes = tree.size()});
        if (!pays) break;
        ProposeContext inner = round;
        inner.cost_model = nullptr;  // it models acceptance by the target, not by a reviewer
        // Reviewed all the same after a failure: that may be due to a token that was drawn, and a review for
        // other tokens only would bias the text.
        const std::exception_ptr failure =
            co_await detail::Failure(fill<i + 1, i + 1>(stack, inner, tree, rng, before, 0));
        co_await detail::review<mode>(stack.template get<i>(), round, before - 1, lenience, tree, rng, work,
                                      work.counts[i]);
        if (failure) std::rethrow_exception(failure);
      }
      if (tree.size() <= before) break;
    }
    if constexpr (i < kLast) co_await fill<row, i + 1>(stack, round, tree, rng, start, limit);
  }
};

}  // namespace specula
