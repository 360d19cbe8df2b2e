// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of texts whose draft fails, also because of the tokens that it has drawn itself.
#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include "every_shape.hpp"
#include "exact_distribution.hpp"
#include "failing_model.hpp"
#include "hash_gram.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using By = FailingModel::By;
constexpr By kWays[] = {By::extend, By::append, By::row};
constexpr std::uint64_t kSeeds[] = {3, 4, 5};

/// What an enumeration has covered; texts with and without a failure must be among it.
struct Covered {
  std::int64_t failed = 0, whole = 0;
  void add(const EmittedDistribution& it) { failed += it.failed, whole += it.leaves - it.failed; }
};

/// One round of each text, or whole texts.
template <class Run>
EmittedDistribution enumerate(Run& run, const ToyModel& target, const SamplingParams& params,
                              std::int32_t vocab, std::size_t horizon, bool whole) {
  return whole ? whole_distribution(run, target, params, prompt_for(vocab), horizon, RandomKeying::key,
                                    Drafts::may_fail)
               : composed_distribution(run, target, params, prompt_for(vocab), horizon, Isa::reference,
                                       Drafts::may_fail);
}

template <class Rule, class Shape>
void one(std::int32_t vocab, Rule rule, const Shape& shape, std::size_t horizon, bool whole = false,
         const SamplingParams& params = kPlain) {
  Covered covered;
  for (const By by : kWays)
    for (const std::uint64_t seed : kSeeds) {
      CAPTURE(static_cast<int>(by));
      CAPTURE(seed);
      ToyModel target(vocab, 1);
      FailingModel draft(vocab, seed, by);
      Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
      const EmittedDistribution got = enumerate(run, target, params, vocab, horizon, whole);
      CHECK(got.error < 1e-12);
      covered.add(got);
    }
  CHECK(covered.failed > 20);
  CHECK(covered.whole > 20);
}

/// A cascade, each of its models failing in turn, above a last drafter with rows or without.
template <std::size_t members, class Rule, class Shape>
void cascade(std::int32_t vocab, Rule rule, const Shape& shape, std::size_t horizon, bool whole = false,
             const SamplingParams& params = kPlain) {
  Covered covered;
  for (std::size_t fragile = 0; fragile < members; ++fragile)
    for (const By by : kWays)
      for (const std::uint64_t seed : kSeeds)
        for (const bool points : {false, true}) {
          CAPTURE(fragile);
          CAPTURE(static_cast<int>(by));
          CAPTURE(seed);
          CAPTURE(points);
          ToyModel target(vocab, 1);
          FailingModel first(vocab, seed, by), second(vocab, seed + 10, by), third(vocab, seed + 20, by);
          first.fragile = fragile == 0, second.fragile = fragile == 1, third.fragile = fragile == 2;
          const auto check = [&](auto... drafters) {
            Speculator run{TreeVerifier{target, rule, params}, Stack{std::move(drafters)...}, shape};
            const EmittedDistribution got = enumerate(run, target, params, vocab, horizon, whole);
            CHECK(got.error < 1e-12);
            covered.add(got);
          };
          const HashGram gram(vocab, seed, 0.3);
          if constexpr (members == 2) {
            if (points)
              check(ModelDrafter{first}, gram);
            else
              check(ModelDrafter{first}, ModelDrafter{second});
          } else {
            if (points)
              check(ModelDrafter{first}, ModelDrafter{second}, gram);
            else
              check(ModelDrafter{first}, ModelDrafter{second}, ModelDrafter{third});
          }
        }
  CHECK(covered.failed > 20);
  CHECK(covered.whole > 20);
}

using Distinct = SampledTree<ProposalKind::sampled_distinct>;
using SampledChain = Chain<Draw::sampled>;

}  // namespace

TEST_CASE("every shape, with every rule that is lossless for it: one round of each text") {
  for_every_shape([](const auto& shape, const Enumerable& sizes) {
    for_every_rule<std::remove_cvref_t<decltype(shape)>::kind>(
        [&](const OneRule& rule) { one(sizes.vocab, rule, shape, sizes.horizon); });
  });
}

TEST_CASE("larger ones, and whole texts") {
  one(3, Block{}, SampledChain{.length = 3}, 3, false, kWarm);
  one(2, Block{}, SampledChain{.length = 3, .exit_below = 0.5f}, 4, true);
  one(2, Traversal{}, Distinct{.widths = {2, 2}}, 3);
  one(2, Traversal{}, Distinct{.widths = {2, 1}}, 3, true);
  one(4, Sampling{}, Cape{.length = 3}, 3);
  one(4, Traversal{}, DynamicTree{.top_k = 2, .expansions = 2, .total = 6}, 3);
}

TEST_CASE("cascades, whose reviews take place after a failure too") {
  using Down2 = Vertical<2, Draw::sampled>;
  cascade<2>(3, Rejection{}, Horizontal<2, Draw::sampled>{.counts = {2, 1}}, 3);
  cascade<2>(3, Rejection{}, Down2{.reviews = 1, .length = 2}, 2);
  cascade<2>(2, Block{}, Down2{.reviews = 2, .length = 1, .lenience = 2}, 3);
  cascade<2>(2, Rejection{}, Down2{.reviews = 1, .length = 2, .lenience = 2}, 3, true);
  cascade<3>(2, Block{}, Vertical<3, Draw::sampled>{.reviews = 1, .length = 2, .lenience = 2}, 2);
  cascade<2>(2, Rejection{}, Cascade<2, Draw::sampled>{.limits = {{{2, 1}, {0, 2}}}}, 3);
  cascade<3>(2, Block{},
             Cascade<3, Draw::sampled>{.limits = {{{1, 1, 1}, {0, 1, 1}, {0, 0, 1}}}, .lenience = 2}, 2);
  cascade<2>(3, Sampling{}, Vertical<2>{.reviews = 1, .length = 2, .lenience = 2}, 3);
}
