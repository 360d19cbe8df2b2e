// SPDX-License-Identifier: MIT
// Every shape and every rule, written down once: a new one is tested wherever all of them are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <specula/runtime/any_rule.hpp>
#include <specula/shape/adaptive_chain.hpp>
#include <specula/shape/beam.hpp>
#include <specula/shape/cape.hpp>
#include <specula/shape/cascade.hpp>
#include <specula/shape/chain.hpp>
#include <specula/shape/dynamic_tree.hpp>
#include <specula/shape/horizontal.hpp>
#include <specula/shape/sampled_tree.hpp>
#include <specula/shape/static_tree.hpp>
#include <specula/shape/vertical.hpp>

#include "one_rule.hpp"

namespace specula_test {

/// Over how many tokens, and how long, the texts of a shape can be enumerated in well below a second.
struct Enumerable {
  std::int32_t vocab;
  std::size_t horizon;
};

/// Calls f(shape, Enumerable) with a small form of each shape over one drafter, for each kind of draw but the
/// shared one, which only two rules take. At most three levels; nothing is carried from text to text.
template <class F>
void for_every_shape(F f) {
  using namespace specula;
  constexpr auto kDistinct = ProposalKind::sampled_distinct, kIid = ProposalKind::sampled_iid;
  f(Chain<>{.length = 3}, Enumerable{3, 3});
  f(Chain<Draw::sampled>{.length = 3}, Enumerable{2, 3});
  f(Chain<Draw::sampled>{.length = 2, .exit_below = 0.5f}, Enumerable{3, 3});
  const ThresholdEnd threshold{.longest = 2, .threshold = 0.6f, .step = 1, .inertia = 0.5f};
  const HeuristicEnd heuristic{.longest = 3, .now = 2};
  f(AdaptiveChain<>{.end = threshold, .carry = false}, Enumerable{3, 3});
  f(AdaptiveChain<ThresholdEnd, Draw::sampled>{.end = threshold, .carry = false}, Enumerable{2, 3});
  f(AdaptiveChain<HeuristicEnd, Draw::sampled>{.end = heuristic, .carry = false}, Enumerable{2, 3});
  f(Cape{.length = 3, .budget = 5, .extras = CapeExtras::fixed(1)}, Enumerable{3, 3});
  f(Beam{.width = 2, .length = 3}, Enumerable{3, 3});
  f(DynamicTree{.top_k = 2, .expansions = 2, .total = 5}, Enumerable{3, 3});
  f(StaticTree<>{.form = {{0}, {1}, {0, 0}, {0, 1}, {1, 0}}}, Enumerable{3, 3});
  f(StaticTree<kDistinct>{.form = {{0}, {1}, {1, 0}}}, Enumerable{2, 3});
  f(SampledTree<kIid>{.widths = {2, 1}}, Enumerable{2, 2});
  f(SampledTree<kIid>{.widths = {2}}, Enumerable{3, 2});
  f(SampledTree<kDistinct>{.widths = {2, 1}}, Enumerable{2, 3});
}

/// Calls f(shape) with a small form of each shape over two drafters; the first one reviews.
template <class F>
void for_every_cascade(F f) {
  using namespace specula;
  f(Horizontal<2>{.counts = {2, 2}});
  f(Horizontal<2, Draw::sampled>{.counts = {2, 2}});
  f(Vertical<2>{.reviews = 3, .length = 3});
  f(Vertical<2, Draw::sampled>{.reviews = 3, .length = 3, .lenience = 2});
  f(Cascade<2>{.limits = {{{4, 3}, {0, 2}}}});
  f(Cascade<2, Draw::sampled>{.limits = {{{4, 3}, {0, 2}}}, .lenience = 3});
}

/// Calls f(rule) with each rule of the table of rules that keeps the target's distribution for proposals of
/// this kind, but for GumbelCoupling, whose noise no enumeration of uniform draws reaches.
template <specula::ProposalKind kind, class F>
void for_every_rule(F f) {
  for (std::size_t name = 0; name < specula::kRules.size(); ++name)
    specula::detail::with_rule(
        static_cast<specula::RuleName>(name), specula::Lenient(2), [&]<class Rule>(const Rule& rule) {
          if constexpr (Rule::lossless_for(kind) && !std::is_same_v<Rule, specula::GumbelCoupling>)
            f(OneRule(rule));
        });
}

}  // namespace specula_test
