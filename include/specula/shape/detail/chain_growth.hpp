// Growing a chain: appends draft tokens of a drafter, and reviews the last nodes by another drafter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "specula/concepts.hpp"
#include "specula/proposal/draw.hpp"
#include "specula/proposal/review.hpp"
#include "specula/shape/ask.hpp"
#include "specula/stats.hpp"

namespace specula::detail {

/// Probability that the whole chain is accepted; 1 without a CostModel.
inline double chain_reach(const ProposeContext& round, const TokenTree& tree) {
  double reach = 1;
  for (NodeId node = 1; round.cost_model && node < tree.size(); ++node)
    reach *= round.accept_probability(static_cast<double>(tree.confidence(node)));
  return reach;
}

/// Appends at most `count` draft tokens of `drafter` to a chain: fewer where it has none, where they do not
/// pay (see CostModel), and after one whose confidence is below `exit_below`. Returns their number.
template <Draw mode, Drafter D, RandomSource C>
std::int32_t grow(D& drafter, const ProposeContext& round, std::int32_t count, ProposalBuilder& tree, C& rng,
                  float exit_below = 0) {
  if (count < 1 || tree.room() < 1) return 0;  // without a sync: an unused drafter must cost nothing
  const NodeId base = tree.size() - 1;
  const bool chooses = mode == Draw::greedy || round.params.greedy();
  double reach = chain_reach(round, tree);
  NodeId parent = kNoParent;  // of the node to run, in the drafter's numbers: the tree's minus `base`
  for (std::int32_t made = 0; made < count && tree.room() > 0; parent = made++) {
    const NodeId at = base + made;
    if (!(chooses ? round.should_draft_to_choose(reach, tree) : round.should_draft(reach, tree))) return made;
    if (made == 0) drafter.sync(round.committed, tree.tokens().first(static_cast<std::size_t>(base)));
    const Token token = tree.token(at);
    const auto rows = ask(drafter, tree, {&token, 1}, {&parent, 1});
    if constexpr (std::is_same_v<std::remove_const_t<decltype(rows)>, PointMasses>) {
      if (rows.tokens[0] == kNoToken) return made;
      const float confidence = rows.confidence(0);
      if (chooses) {
        round.saw_drafted(static_cast<double>(confidence));
        if (!round.should_keep(reach, static_cast<double>(confidence), tree)) return made;
      }
      tree.copy(at, rows.tokens[0], confidence);
    } else if (chooses) {
      const Top top = tree.top(at, rows.row(0));
      round.saw_drafted(top.prob);
      if (!round.should_keep(reach, top.prob, tree)) return made;
      tree.choose(at, top.token, static_cast<float>(top.prob));
    } else if constexpr (mode == Draw::shared) {
      tree.draw_shared(at, tree.store(at, rows.row(0), round.params), rng);
    } else {
      tree.draw(at, tree.store(at, rows.row(0), round.params), rng);
    }
    reach *= round.accept_probability(static_cast<double>(tree.confidence(at + 1)));
    if (tree.confidence(at + 1) < exit_below) return made + 1;
  }
  return tree.size() - 1 - base;
}

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

/// `reviewer` verifies all nodes of a chain after `base` in one call. The chain keeps those that it accepts,
/// followed by one token of its own. See specula::review.
template <Draw mode, DenseDrafter D, RandomSource C>
void review(D& reviewer, const ProposeContext& round, NodeId base, double lenience, ProposalBuilder& tree,
            C& rng, const ReviewScratch& scratch, Reviews& counts) {
  const auto from = static_cast<std::size_t>(base), nodes = static_cast<std::size_t>(tree.size() - base);
  const SamplingParams params = mode == Draw::greedy ? SamplingParams{.temperature = 0} : round.params;
  reviewer.sync(round.committed, tree.tokens().first(from));
  const LogitsView rows =
      ask(reviewer, tree, tree.tokens().subspan(from, nodes), Nodes(scratch.line).first(nodes));
  ++counts.calls;
  for (NodeId node = base + 1; node < base + static_cast<NodeId>(nodes); ++node) {
    const bool accepted = specula::review(tree, node, rows.row(node - 1 - base), params, lenience, rng);
    counts.saw(node - 1 - base, accepted);
    if (!accepted) return;
  }
  if (tree.room() < 1) return;
  const NodeId last = tree.size() - 1;
  if (params.greedy()) {
    const Top top = tree.top(last, rows.row(last - base));
    tree.choose(last, top.token, static_cast<float>(top.prob));
  } else {
    tree.draw(last, tree.store(last, rows.row(last - base), params), rng);
  }
}

/// Drafters that a cascade of `members` can use; see draft/stack.hpp.
template <class D, std::size_t members>
concept StackOf = Drafter<D> && requires {
  requires D::kMembers == members;
};

/// The same if all members but the last return rows, which a review requires.
template <class D, std::size_t members, std::size_t i = 0>
constexpr bool reviews_below() {
  if constexpr (i + 1 >= members)
    return true;
  else
    return DenseDrafter<std::remove_reference_t<decltype(std::declval<D&>().template get<i>())>> &&
           reviews_below<D, members, i + 1>();
}
template <class D, std::size_t members>
concept ReviewingStackOf = StackOf<D, members> && reviews_below<D, members>();

}  // namespace specula::detail
