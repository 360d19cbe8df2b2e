// SPDX-License-Identifier: MIT
// Static draft tree: EAGLE-1's and Medusa's trees of ranks, Sequoia's sampled ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "specula/base/fields.hpp"
#include "specula/policy/ask.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/propose_context.hpp"
#include "specula/shape/detail/candidates.hpp"
#include "specula/shape/ranked_tree.hpp"

namespace specula {

///   specula::StaticTree<> shape{.form = specula::RankedTree::eagle()};
///
/// The same tree of ranks in every round, independent of the draft's confidence. The drafter runs only nodes
/// with children. A token of probability 0 under the draft is left out with its descendants. Deterministic: a
/// node is the token of its rank in the draft's row after its parent; if there is no room for all, the nodes
/// with the likeliest paths are proposed. Or sampled_distinct: the children of a node are drawn without
/// replacement from the draft's distribution after it, under the target's own parameters; rank r is the (r +
/// 1)th draw, so ranks must have no gaps. From the first node of a level whose children do not fit, nodes of
/// that level get none. At temperature 0 each node has one child, the likeliest.
/// **Draws.** Deterministic: nothing. sampled_distinct: one `draft` per child.
/// **Cost.** One draft call per level, and one read of each row.
/// **Throws.** std::invalid_argument: validate() for gaps, propose() for a rank from V on; as drafter and
/// `tree`.
/// **Source.** EAGLE (Li et al. 2024), Medusa (Cai et al. 2024); sampled, Sequoia (Chen et al. 2024).
template <ProposalKind how = ProposalKind::deterministic>
struct StaticTree {
  static_assert(how == ProposalKind::deterministic || how == ProposalKind::sampled_distinct,
                "a static tree is chosen by rank (deterministic) or drawn without replacement "
                "(sampled_distinct)");
  static constexpr ProposalKind kind = how;  ///< how its draft tokens are drawn

  RankedTree form = RankedTree::eagle();  ///< the tree of ranks
  detail::Candidates work = {};           ///< workspace
  /// Workspace. Chosen: (candidates) nodes of the form; drawn: (form) nodes of the tree.
  std::vector<NodeId> places = {};
  std::vector<NodeId> drafted = {};  ///< workspace; drawn: (form) the drafter's nodes

  /// How large its proposals get.
  NodeCounts nodes() const {
    return {.most = form.size(),
            .least = kind == ProposalKind::deterministic ? 2 : 1 + form.children(0),
            .drafted = form.draft_nodes()};
  }
  /// Throws std::invalid_argument if the tree is sampled and its ranks have gaps.
  void validate() const {
    if constexpr (kind == ProposalKind::sampled_distinct)
      for (NodeId n = 0; n < form.size(); ++n)
        if (form.children(n) > 0 && form.rank(form.first_child(n) + form.children(n) - 1) >= form.children(n))
          throw std::invalid_argument("StaticTree: the " + detail::number(form.children(n)) +
                                      " children of node " + detail::number(n) + " have ranks up to " +
                                      detail::number(form.rank(form.first_child(n) + form.children(n) - 1)) +
                                      "; draws have no gaps");
  }
  /// Sizes the workspace, so that propose() need not allocate.
  void reserve(const Sizes& = {}) {
    work.reserve(form.size(), form.most_rank() + 1, form.size());
    places.reserve(static_cast<std::size_t>(form.size()));
    drafted.reserve(places.capacity());
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <LogitsDrafter D, RandomSource C>
  Steps propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    if (form.most_rank() >= tree.vocab())
      throw std::invalid_argument("StaticTree: rank " + detail::number(form.most_rank()) +
                                  " in a vocabulary of " + detail::number(tree.vocab()) + " tokens");
    work.clear();
    if constexpr (kind == ProposalKind::deterministic)
      return choose(drafter, round, tree);
    else
      return draw(drafter, round, tree, rng);
  }

 private:
  template <class D>
  SPECULA_STEPS choose(D& drafter, const ProposeContext& round, ProposalBuilder& tree) {
    places.clear();
    NodeId asked = 0;
    for (std::int32_t level = 0; level < form.depth(); ++level) {
      const DraftCall call = detail::expansion(drafter, round, work, level, asked);
      if (call.width == 0) break;
      const bool pays = co_await round.call_pays(tree, call);
      if (!pays) break;
      const LogitsView rows = co_await detail::ask_frontier(drafter, round, tree, work);
      detail::each_row(work, rows, asked, [&](std::int32_t parent, NodeId node, auto row) {
        const NodeId above = parent == kNoParent ? 0 : places[static_cast<std::size_t>(parent)];
        const NodeId first = form.first_child(above), last = first + form.children(above) - 1;
        const double reach = parent == kNoParent ? 1.0 : work[parent].reach;
        const std::span<const Top> top = work.top_k(tree, node, row, form.rank(last) + 1);
        for (NodeId n = first; n <= last && static_cast<std::size_t>(form.rank(n)) < top.size(); ++n) {
          const Top& draft_token = top[static_cast<std::size_t>(form.rank(n))];
          const std::int32_t added =
              work.add(draft_token, parent, reach * round.accept_probability(draft_token.prob));
          places.push_back(n);
          if (form.children(n) > 0) work.listed.push_back(added);
        }
      });
      work.advance(round);
    }
    work.list_all();
    work.prune(tree.room(), round, tree.size());
    detail::build_tree(tree, work);
  }

  template <class D, class C>
  SPECULA_STEPS draw(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) {
    if (!can_draft(drafter, round)) co_return;
    const auto at = [](NodeId node) { return static_cast<std::size_t>(node); };
    places.assign(at(form.size()), kNoParent), drafted.assign(at(form.size()), kNoParent);
    places[0] = 0;
    NodeId asked = 0;
    for (std::int32_t level = 0; level < form.depth(); ++level) {
      work.tokens.clear(), work.parents.clear(), work.frontier.clear();
      std::int32_t fresh = 0;
      double reach = 0;
      for (NodeId n = form.level(level); n < form.level(level + 1); ++n) {
        if (form.children(n) == 0 || places[at(n)] == kNoParent || round.ends_text(tree, places[at(n)]))
          continue;
        if (fresh + form.children(n) > tree.room()) break;
        fresh += form.children(n);
        reach += round.reach(tree, places[at(n)]);
        work.frontier.push_back(n);
        work.tokens.push_back(tree.token(places[at(n)]));
        work.parents.push_back(n == 0 ? kNoParent : drafted[at(form.parent(n))]);
      }
      if (work.frontier.empty()) co_return;
      const bool pays = co_await round.call_pays(
          tree, {reach, static_cast<std::int32_t>(work.frontier.size()), fresh, tree.size()});
      if (!pays) co_return;
      if (level == 0) drafter.sync(round.committed, {});  // only here: an unused drafter must cost nothing
      const LogitsView rows = co_await ask(drafter, tree, work.tokens, work.parents);
      for (std::int32_t i = 0; i < rows.rows; ++i) {
        const NodeId n = work.frontier[static_cast<std::size_t>(i)], node = places[at(n)];
        drafted[at(n)] = asked++;
        const Distribution distribution_after = tree.store(node, rows.row(i), round.params);
        for (std::int32_t child = 0; child < form.children(n); ++child) {
          const NodeId drawn = tree.draw_distinct(node, distribution_after, rng);
          if (drawn == kNoParent) break;  // no other token has mass
          places[at(form.first_child(n) + child)] = drawn;
        }
      }
    }
  }
};

}  // namespace specula
