// SPDX-License-Identifier: MIT
// Sampled draft tree: several children per node, drawn with or without replacement.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "specula/base/fields.hpp"
#include "specula/policy/ask.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/propose_context.hpp"

namespace specula {

///   specula::SampledTree<specula::ProposalKind::sampled_distinct> shape{.widths = {4, 2, 1}};
///
/// Every node at depth d gets widths[d] children, drawn from the draft's distribution after it under the
/// target's own parameters: independently (sampled_iid) or without replacement (sampled_distinct; fewer where
/// fewer tokens have mass). The tree ends at the first width of 0. It grows level by level; a node gets all
/// its children or, without room for them or after a stop token, none.
/// **Draws.** One `draft` per child. **Cost.** One draft call per level.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafter and `tree`.
/// **Source.** With replacement SpecInfer (Miao et al. 2023); without, Sequoia (Chen et al. 2024), RSD (Jeon
/// et al. 2024).
template <ProposalKind how>
struct SampledTree {
  static_assert(how == ProposalKind::sampled_iid || how == ProposalKind::sampled_distinct,
                "a sampled tree is drawn with replacement (sampled_iid) or without (sampled_distinct)");
  static constexpr ProposalKind kind = how;  ///< how its draft tokens are drawn

  std::array<std::int32_t, 16> widths{4, 2, 1};  ///< children per node, by depth; ends at the first 0

  /// How large its proposals get.
  NodeCounts nodes() const {
    std::int64_t total = 1, level = 1;
    for (const std::int32_t width : widths)
      total += level = std::min<std::int64_t>(level * std::max(0, width), 1 << 24);
    return {.most = detail::node_count(total), .least = 1 + std::max(0, widths[0])};
  }
  /// Throws std::invalid_argument if a width is negative or too large, or if all give too many nodes.
  void validate() const {
    detail::expect_all_in("SampledTree::widths", widths, 0, detail::kMaxDraftTokens);
    detail::expect_nodes("SampledTree", *this);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <LogitsDrafter D, RandomSource C>
  SPECULA_STEPS propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const {
    if (!can_draft(drafter, round)) co_return;
    NodeId begin = 0;
    for (std::size_t depth = 0; depth < widths.size() && widths[depth] > 0; ++depth) {
      const NodeId end = tree.size();
      if (tree.room() < widths[depth]) co_return;
      const DraftCall call = level(round, tree, begin, widths[depth]);
      if (call.adds == 0) co_return;
      const bool pays = co_await round.call_pays(tree, call);
      if (!pays) co_return;
      if (depth == 0) drafter.sync(round.committed, {});
      const auto first = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
      const LogitsView rows = co_await ask(drafter, tree, tree.tokens().subspan(first, count),
                                           tree.parents().subspan(first, count));
      for (NodeId node = begin; node < end && tree.room() >= widths[depth]; ++node) {
        if (round.ends_text(tree, node)) continue;
        const Distribution distribution_after = tree.store(node, rows.row(node - begin), round.params);
        for (std::int32_t child = 0; child < widths[depth]; ++child) {
          if (child > 0 && distribution_after.is_point())
            break;  // temperature 0: a second child would repeat the first
          if (how == ProposalKind::sampled_iid)
            tree.draw(node, distribution_after, rng);
          else if (tree.draw_distinct(node, distribution_after, rng) == kNoParent)
            break;
        }
      }
      begin = end;
    }
  }

 private:
  /// The call for a level of `width` children per node from `begin` on, which adds none if the text ends at
  /// all of these; depends on earlier levels only.
  static DraftCall level(const ProposeContext& round, const TokenTree& tree, NodeId begin,
                         std::int32_t width) {
    double reach = 0;
    std::int32_t parents = 0;
    for (NodeId node = begin; node < tree.size(); ++node)
      if (!round.ends_text(tree, node)) reach += round.reach(tree, node), ++parents;
    return {reach, tree.size() - begin, std::min(tree.room(), parents * width), tree.size()};
  }
};

}  // namespace specula
