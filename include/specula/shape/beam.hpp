// SPDX-License-Identifier: MIT
// Beam search tree: the best paths of a beam search, with shared prefixes merged.
#pragma once

#include <algorithm>
#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/shape/detail/candidates.hpp"

namespace specula {

///   specula::Beam shape{.width = 4, .length = 4};
///
/// The `width` paths of `length` draft tokens with the largest cumulative log-probability (softmax at
/// temperature 1) that a beam search of that width finds. If the tree has no room for all nodes, those with
/// the likeliest paths are kept. Deterministic.
/// **Draws.** Nothing. **Cost.** `length` draft calls, all but the first over `width` nodes.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafter and `tree`.
/// **Source.** Nothing; beam search.
struct Beam {
  static constexpr ProposalKind kind = ProposalKind::deterministic;  ///< how its draft tokens are drawn

  std::int32_t width = 4;        ///< paths
  std::int32_t length = 4;       ///< draft tokens per path
  detail::Candidates work = {};  ///< workspace

  /// How large its proposals get.
  NodeCounts nodes() const {
    return {.most = detail::node_count(1 + std::int64_t{width} * length),
            .drafted = length > 0 ? detail::node_count(1 + std::int64_t{width} * (length - 1)) : 0};
  }
  /// Throws std::invalid_argument if a field is negative or too large, or if both give too many nodes.
  void validate() const {
    detail::expect_in("Beam::width", width, 0, detail::kMaxDraftTokens);
    detail::expect_in("Beam::length", length, 0, detail::kMaxDraftTokens);
    detail::expect_nodes("Beam", *this);
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& = {}) {
    work.reserve(detail::node_count(std::int64_t{nodes().drafted} * width), width, width);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <LogitsDrafter D, RandomSource C>
  SPECULA_STEPS propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C&) {
    work.clear();
    NodeId drafted = 0;
    for (std::int32_t level = 0; level < length; ++level) {
      const DraftCall call = detail::expansion(drafter, round, work, level, drafted);
      if (call.width == 0) break;
      const bool pays = co_await round.call_pays(tree, call);
      if (!pays) break;
      const LogitsView rows = co_await detail::ask_frontier(drafter, round, tree, work);
      detail::expand(round, tree, work, rows, width, drafted);
    }
    work.listed.assign(work.frontier.begin(), work.frontier.end());
    work.listed.insert(work.listed.end(), work.ended.begin(), work.ended.end());
    work.list_ancestors();
    work.prune(tree.room(), round, tree.size());
    detail::build_tree(tree, work);
  }
};

}  // namespace specula
