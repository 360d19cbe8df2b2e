// SPDX-License-Identifier: MIT
// EAGLE-2's dynamic draft tree: expanded by confidence, then pruned to the likeliest nodes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/shape/detail/candidates.hpp"

namespace specula {

///   specula::DynamicTree shape{.top_k = 10, .expansions = 5, .total = 59};
///
/// Starts with the `top_k` likeliest tokens after the root. Then, `expansions` times, the draft runs over the
/// `top_k` likeliest of the newest nodes and adds the `top_k` likeliest tokens after each. The `total` nodes
/// with the largest cumulative log-probability (softmax at temperature 1) are proposed, ties to the older: an
/// ancestor is never less likely than its descendants, so the selection is a tree. Deterministic.
/// **Draws.** Nothing. **Cost.** 1 + expansions draft calls, all but the first over `top_k` nodes.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafter and `tree`.
/// **Source.** EAGLE-2 (Li et al. 2024), as used by HASS (Zhang et al. 2024).
struct DynamicTree {
  static constexpr ProposalKind kind = ProposalKind::deterministic;  ///< how its draft tokens are drawn

  std::int32_t top_k = 10;       ///< tokens after a node, and nodes that are expanded at a time
  std::int32_t expansions = 5;   ///< levels after the first
  std::int32_t total = 59;       ///< nodes of the proposal, root not counted
  detail::Candidates work = {};  ///< workspace

  /// How large its proposals get.
  NodeCounts nodes() const {
    return {.most = 1 + std::min(total, pool()),
            .drafted = detail::node_count(1 + std::int64_t{expansions} * top_k)};
  }
  /// Throws std::invalid_argument if a field is negative or too large.
  void validate() const {
    detail::expect_in("DynamicTree::top_k", top_k, 0, detail::kMaxDraftTokens);
    detail::expect_in("DynamicTree::expansions", expansions, 0, detail::kMaxDraftTokens);
    detail::expect_in("DynamicTree::total", total, 0, detail::kMaxDraftTokens);
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& = {}) { work.reserve(pool(), top_k, top_k); }

  /// Grows `tree` from its root; see ProposalShape.
  template <LogitsDrafter D, RandomSource C>
  SPECULA_STEPS propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C&) {
    work.clear();
    NodeId drafted = 0;
    for (std::int32_t level = 0; level <= expansions; ++level) {
      const DraftCall call = detail::expansion(drafter, round, work, level, drafted);
      if (call.width == 0) break;
      const bool pays = co_await round.call_pays(tree, call);
      if (!pays) break;
      const LogitsView rows = co_await detail::ask_frontier(drafter, round, tree, work);
      detail::expand(round, tree, work, rows, top_k, drafted);
    }
    work.list_all();
    work.prune(std::min(total, tree.room()), round, tree.size());
    detail::build_tree(tree, work);
  }

 private:
  std::int32_t pool() const { return detail::node_count((1 + std::int64_t{expansions} * top_k) * top_k); }
};

}  // namespace specula
