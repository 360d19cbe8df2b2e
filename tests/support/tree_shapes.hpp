// Shapes that draw trees in every way the token tree knows: for tests of rules and of laws.
#pragma once

#include <cstdint>

#include <specula/concepts.hpp>

namespace specula_test {

/// How one child of a node enters the tree.
enum class Child : std::uint8_t { drawn, distinct, chosen };

/// Every node above `depth` gets the children that `how` lists, in that order; a chosen one is `pick`, as
/// often as it is listed. Rows come from the drafter, level by level.
template <specula::DraftLaw kLaw, Child... how>
struct Bush {
  static constexpr specula::DraftLaw law = kLaw;
  std::int32_t depth = 1;
  specula::Token pick = 0;

  std::int32_t max_nodes() const {
    std::int32_t total = 1, level = 1;
    for (std::int32_t d = 0; d < depth; ++d) total += level *= static_cast<std::int32_t>(sizeof...(how));
    return total;
  }
  template <class D, class C>
  void propose(D& drafter, const specula::Round& round, specula::TokenTree& tree, C& chance) const {
    drafter.sync(round.context, {});
    for (specula::NodeId n = 0; n < tree.size() && tree.depth(n) < depth; ++n) {
      const specula::Token token = tree.token(n);
      const specula::NodeId parent = tree.parent(n);
      const auto row = drafter.extend({&token, 1}, {&parent, 1}).row(0);
      const specula::RowLaw q =
          law == specula::DraftLaw::deterministic ? specula::RowLaw() : tree.store(n, row, round.params);
      (grow(how, n, q, tree, chance), ...);
    }
  }

 private:
  template <class C>
  void grow(Child child, specula::NodeId n, const specula::RowLaw& q, specula::TokenTree& tree,
            C& chance) const {
    if (tree.room() < 1) return;
    if (child == Child::drawn) tree.draw(n, q, chance);
    if (child == Child::distinct) tree.draw_distinct(n, q, chance);
    if (child == Child::chosen) tree.choose(n, pick, 1.0f);
  }
};

using IidPair = Bush<specula::DraftLaw::sampled_iid, Child::drawn, Child::drawn>;
using DistinctPair = Bush<specula::DraftLaw::sampled_distinct, Child::distinct, Child::distinct>;
using DistinctTriple =
    Bush<specula::DraftLaw::sampled_distinct, Child::distinct, Child::distinct, Child::distinct>;
using DrawnThenChosen = Bush<specula::DraftLaw::mixed, Child::drawn, Child::chosen>;
using ChosenThenDistinct = Bush<specula::DraftLaw::mixed, Child::chosen, Child::distinct>;
using DrawnThenDistinct = Bush<specula::DraftLaw::mixed, Child::drawn, Child::distinct>;
using ChosenTwice = Bush<specula::DraftLaw::deterministic, Child::chosen, Child::chosen>;

}  // namespace specula_test
