// SPDX-License-Identifier: MIT
// Fan: the draft's likeliest next tokens side by side, one level deep.
#pragma once

#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/shape/detail/candidates.hpp"

namespace specula {

///   specula::Fan shape{.width = 4};
///
/// The `width` likeliest tokens after the root. Deterministic.
/// **Draws.** Nothing. **Cost.** One draft call over one node.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafter and `tree`.
/// **Source.** Nothing.
struct Fan {
  static constexpr ProposalKind kind = ProposalKind::deterministic;  ///< how its draft tokens are drawn

  std::int32_t width = 4;        ///< draft tokens
  detail::Candidates work = {};  ///< workspace

  /// How large its proposals get.
  NodeCounts nodes() const { return {.most = detail::node_count(1 + std::int64_t{width}), .drafted = 1}; }
  /// Throws std::invalid_argument if the width is negative or too large.
  void validate() const {
    detail::expect_in("Fan::width", width, 0, detail::kMaxDraftTokens);
    detail::expect_nodes("Fan", *this);
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& = {}) { work.reserve(width, width, width); }

  /// Grows `tree` from its root; see ProposalShape.
  template <LogitsDrafter D, RandomSource C>
  SPECULA_STEPS propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C&) {
    work.clear();
    NodeId drafted = 0;
    const DraftCall call = detail::expansion(drafter, round, work, 0, drafted);
    const bool pays = call.width > 0 && co_await round.call_pays(tree, call);
    if (pays) {
      const LogitsView rows = co_await detail::ask_frontier(drafter, round, tree, work);
      detail::expand(round, tree, work, rows, width, drafted);
    }
    work.listed.assign(work.frontier.begin(), work.frontier.end());
    work.listed.insert(work.listed.end(), work.ended.begin(), work.ended.end());
    work.prune(tree.room(), round, tree.size());
    detail::build_tree(tree, work);
  }
};

}  // namespace specula
