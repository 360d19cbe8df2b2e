// SPDX-License-Identifier: MIT
// Chain of draft tokens: the proposal of speculative decoding without a tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "specula/base/fields.hpp"
#include "specula/base/proposal_kind.hpp"
#include "specula/policy/ask.hpp"
#include "specula/policy/concepts.hpp"
#include "specula/policy/propose_context.hpp"
#include "specula/proposal/proposal_builder.hpp"
#include "specula/shape/detail/candidates.hpp"

namespace specula {

namespace detail {

/// Appends at most `count` draft tokens of `drafter` to a chain: fewer where it has none or no room, where
/// they do not pay (see CostModel), and after one that ends the text or whose confidence is below
/// `exit_below`.
template <Draw mode, Drafter D, RandomSource C>
SPECULA_STEPS grow(D& drafter, const ProposeContext& round, std::int32_t count, ProposalBuilder& tree, C& rng,
                   float exit_below = 0) {
  // Without a sync: an unused drafter must cost nothing.
  if (count < 1 || tree.room() < 1 || !can_draft(drafter, round)) co_return;
  const NodeId base = tree.size() - 1;
  const bool chooses = mode == Draw::greedy || round.params.greedy();
  double reach = round.reach(tree, base);
  NodeId parent = kNoParent;  // of the node to run, in the drafter's numbers: the tree's minus `base`
  for (std::int32_t made = 0; made < count && tree.room() > 0; parent = made++) {
    const NodeId at = base + made;
    if (round.ends_text(tree, at)) co_return;
    const bool pays = co_await round.call_pays(tree, {.reach = reach, .nodes = tree.size()});
    if (!pays) co_return;
    if (made == 0) drafter.sync(round.committed, tree.tokens().first(static_cast<std::size_t>(base)));
    const Token token = tree.token(at);
    const auto rows = co_await ask(drafter, tree, {&token, 1}, {&parent, 1});
    if constexpr (std::is_same_v<std::remove_const_t<decltype(rows)>, PointMasses>) {
      if (rows.tokens[0] == kNoToken) co_return;
      const float confidence = rows.confidence(0);
      if (chooses && !round.node_pays(reach, static_cast<double>(confidence), tree.size())) co_return;
      tree.copy(at, rows.tokens[0], confidence);
    } else if (chooses) {
      const Top top = tree.top(at, rows.row(0));
      if (!round.node_pays(reach, top.prob, tree.size())) co_return;
      tree.choose(at, top.token, static_cast<float>(top.prob));
    } else if constexpr (mode == Draw::shared) {
      tree.draw_shared(at, tree.store(at, rows.row(0), round.params), rng);
    } else {
      tree.draw(at, tree.store(at, rows.row(0), round.params), rng);
    }
    reach *= round.accept_probability(static_cast<double>(tree.confidence(at + 1)));
    if (tree.confidence(at + 1) < exit_below) co_return;
  }
}

}  // namespace detail

///   specula::Chain<> shape{.length = 6};
///
/// A path of at most `length` draft tokens. Drafters without rows give their token in every mode; the chain
/// ends where they have none, and after a stop token.
/// **Draws.** Per draft token: sampled one `draft`, shared the `noise` of its position, greedy nothing.
/// **Cost.** Per draft token one draft call, and if shared a draw_by_noise.
/// **Throws.** validate(): std::invalid_argument for a bad field. propose(): as the drafter and `tree`.
/// **Source.** Leviathan et al. 2023.
template <Draw mode = Draw::greedy>
struct Chain {
  static constexpr ProposalKind kind = kind_of_chain(mode);  ///< how its draft tokens are drawn

  std::int32_t length = 4;  ///< draft tokens
  /// Ends the chain *after* a draft token whose confidence is below this (0: never): its softmax probability
  /// at temperature 1 if greedy, its probability under the distribution it was drawn from if sampled, the
  /// drafter's confidence if that has no rows. Leaving it out would bias the text: that depends on the draw.
  float exit_below = 0.0f;

  /// How large its proposals get.
  NodeCounts nodes() const { return {detail::node_count(std::int64_t{1} + length)}; }
  /// Throws std::invalid_argument unless length is in [0, 2^24 - 2] and exit_below in [0, 1].
  void validate() const {
    detail::expect_in("Chain::length", length, 0, detail::kMaxDraftTokens);
    detail::expect_in("Chain::exit_below", exit_below, 0.0f, 1.0f);
  }

  /// Grows `tree` from its root; see ProposalShape.
  template <Drafter D, RandomSource C>
  Steps propose(D& drafter, const ProposeContext& round, ProposalBuilder& tree, C& rng) const
      requires(mode != Draw::shared || NoiseSource<C>) {
    return detail::grow<mode>(drafter, round, length, tree, rng, exit_below);
  }
};

}  // namespace specula
