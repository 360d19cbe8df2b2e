// SPDX-License-Identifier: MIT
// Shapes that grow trees in every way of ProposalBuilder, for tests of rules and of distributions.
#pragma once

#include <cstdint>

#include <specula/policy/concepts.hpp>

namespace specula_test {

/// How one child of a node enters the tree.
enum class Child : std::uint8_t { drawn, distinct, chosen };

/// Every node above `depth` gets the children that `how` lists, in that order; a chosen one is `pick`, as
/// often as it is listed. The drafter is called once per level.
template <specula::ProposalKind kProposalKind, Child... how>
struct Bush {
  static constexpr specula::ProposalKind kind = kProposalKind;
  std::int32_t depth = 1;
  specula::Token pick = 0;

  specula::NodeCounts nodes() const {
    std::int32_t total = 1, level = 1;
    for (std::int32_t d = 0; d < depth; ++d) total += level *= static_cast<std::int32_t>(sizeof...(how));
    return {total};
  }
  template <class D, class C>
  void propose(D& drafter, const specula::ProposeContext& round, specula::ProposalBuilder& tree,
               C& rng) const {
    drafter.sync(round.committed, {});
    for (specula::NodeId n = 0; n < tree.size() && tree.depth(n) < depth; ++n) {
      const specula::Token token = tree.token(n);
      const specula::NodeId parent = tree.parent(n);
      const auto row = drafter.extend({&token, 1}, {&parent, 1}).row(0);
      const specula::Distribution q = kind == specula::ProposalKind::deterministic
                                          ? specula::Distribution()
                                          : tree.store(n, row, round.params);
      (grow(how, n, q, tree, rng), ...);
    }
  }

 private:
  template <class C>
  void grow(Child child, specula::NodeId n, const specula::Distribution& q, specula::ProposalBuilder& tree,
            C& rng) const {
    if (tree.room() < 1) return;
    if (child == Child::drawn) tree.draw(n, q, rng);
    if (child == Child::distinct) tree.draw_distinct(n, q, rng);
    if (child == Child::chosen) tree.choose(n, pick, 1.0f);
  }
};

using IidPair = Bush<specula::ProposalKind::sampled_iid, Child::drawn, Child::drawn>;
using DistinctPair = Bush<specula::ProposalKind::sampled_distinct, Child::distinct, Child::distinct>;
using DistinctTriple =
    Bush<specula::ProposalKind::sampled_distinct, Child::distinct, Child::distinct, Child::distinct>;
using DrawnThenChosen = Bush<specula::ProposalKind::mixed, Child::drawn, Child::chosen>;
using ChosenThenDistinct = Bush<specula::ProposalKind::mixed, Child::chosen, Child::distinct>;
using DrawnThenDistinct = Bush<specula::ProposalKind::mixed, Child::drawn, Child::distinct>;
using ChosenTwice = Bush<specula::ProposalKind::deterministic, Child::chosen, Child::chosen>;

}  // namespace specula_test
