// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of cascades: horizontal, vertical and both, at any lenience,
// over rows and over point masses.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "exact_distribution.hpp"
#include "hash_gram.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// A pipeline whose drafters are toys of other seeds, best first. All but the last have rows.
enum class Last { dense, points, silent };

template <class Shape>
constexpr bool kCopies = false;
template <class Shape>
constexpr bool kCopies<Either<Shape>> = true;

template <std::size_t drafters, class Rule, class Shape>
EmittedDistribution distribution_of(std::int32_t vocab, Rule rule, const Shape& shape,
                                    const SamplingParams& params, std::size_t horizon, std::uint64_t seed,
                                    Last last, bool whole = false, RandomKeying keying = RandomKeying::key,
                                    Token stop = kNoToken) {
  ToyModel target(vocab, seed), first(vocab, seed + 1), second(vocab, seed + 2), third(vocab, seed + 3);
  const auto distribution = [&](auto... members) {
    Speculator speculator{TreeVerifier{target, rule, params}, Stack{std::move(members)...}, shape};
    EndingAt run(speculator, stop);
    EmittedDistribution out =
        whole ? whole_distribution(run, target, params, prompt_for(vocab), horizon, keying)
              : composed_distribution(run, target, params, prompt_for(vocab), horizon);
    out.ended = run.ended;
    return out;
  };
  const HashGram gram(vocab, seed, last == Last::silent ? 0.5 : 0.0);
  if constexpr (drafters == 2) {
    if constexpr (!kCopies<Shape>)
      if (last == Last::dense) return distribution(ModelDrafter{first}, ModelDrafter{second});
    return distribution(ModelDrafter{first}, gram);
  } else {
    if (last == Last::dense)
      return distribution(ModelDrafter{first}, ModelDrafter{second}, ModelDrafter{third});
    return distribution(ModelDrafter{first}, ModelDrafter{second}, gram);
  }
}

/// Every rule that is lossless for sampled chains, with and without truncation, and with each token as a stop
/// token; shorter texts whose tokens lie in three tiles, too.
template <std::size_t drafters, class Shape>
void check(const Shape& shape, std::int32_t vocab, std::size_t horizon, Last last) {
  const auto worst = [&](auto rule) {
    double narrow = std::max(distribution_of<drafters>(vocab, rule, shape, kPlain, horizon, 10, last).error,
                             distribution_of<drafters>(vocab, rule, shape, kWarm, horizon, 5, last).error);
    std::int64_t ended = 0;
    for (Token stop = 0; stop < vocab; ++stop) {
      const EmittedDistribution it = distribution_of<drafters>(vocab, rule, shape, kPlain, horizon, 10, last,
                                                               false, RandomKeying::key, stop);
      narrow = std::max(narrow, it.error), ended += it.ended;
    }
    CHECK(ended > 0);  // stop tokens were drafted
    const ThreeTiles wide;
    return std::max(narrow, distribution_of<drafters>(vocab, rule, shape, kPlain, 1, 10, last).error);
  };
  CAPTURE(vocab);
  CAPTURE(static_cast<int>(last));
  CHECK(worst(Rejection{}) < 1e-12);
  CHECK(worst(Block{}) < 1e-12);
  CHECK(worst(SampleAndMatch{}) < 1e-12);
  CHECK(distribution_of<drafters>(vocab, Greedy{}, shape, kGreedy, horizon + 1, 3, last).error < 1e-12);
  CHECK(distribution_of<drafters>(vocab, Sampling{}, shape, kGreedy, horizon + 1, 4, last).error < 1e-12);
}

template <std::size_t n>
using Across = Horizontal<n, Draw::sampled>;
template <std::size_t n>
using Down = Vertical<n, Draw::sampled>;
template <std::size_t n>
using Both = Cascade<n, Draw::sampled>;

constexpr Last kLasts[] = {Last::dense, Last::points, Last::silent};

}  // namespace

TEST_CASE("horizontal cascades") {
  for (const Last last : kLasts) {
    check<2>(Across<2>{.counts = {2, 1}}, 3, 3, last);
    check<2>(Across<2>{.counts = {1, 2}}, 2, 4, last);
    check<3>(Across<3>{.counts = {1, 1, 1}}, 3, 3, last);
  }
}

TEST_CASE("either a draft or copies") {
  const auto costs = CostCurve({1, 1.2, 1.6});
  for (const Last last : {Last::points, Last::silent}) {
    check<2>(Either(Chain<Draw::sampled>{.length = 2}, 2, costs, CostCurve({0.02})).carry(false), 3, 3, last);
    check<2>(Either(Chain<Draw::sampled>{.length = 1}, 1, costs, CostCurve({0.02})).carry(false), 2, 4, last);
  }
}

TEST_CASE("vertical cascades of depth 2") {
  for (const Last last : kLasts)
    for (const double lenience : {1.0, 2.0, 5.0}) {
      CAPTURE(lenience);
      check<2>(Down<2>{.reviews = 1, .length = 2, .lenience = lenience}, 3, 3, last);
      check<2>(Down<2>{.reviews = 2, .length = 1, .lenience = lenience}, 2, 4, last);
    }
}

TEST_CASE("vertical cascades of depth 3") {
  for (const Last last : kLasts)
    for (const double lenience : {1.0, 2.0, 5.0}) {
      CAPTURE(lenience);
      check<3>(Down<3>{.reviews = 1, .length = 1, .lenience = lenience}, 3, 2, last);
      check<3>(Down<3>{.reviews = 1, .length = 2, .lenience = lenience}, 2, 3, last);
    }
}

TEST_CASE("full cascades of depth 2") {
  for (const Last last : kLasts)
    for (const double lenience : {1.0, 2.0, 5.0}) {
      CAPTURE(lenience);
      check<2>(Both<2>{.limits = {{{2, 1}, {0, 1}}}, .lenience = lenience}, 2, 3, last);
      check<2>(Both<2>{.limits = {{{1, 2}, {0, 2}}}, .lenience = lenience}, 3, 2, last);
    }
}

TEST_CASE("full cascades of depth 3") {
  for (const Last last : kLasts)
    for (const double lenience : {1.0, 2.0, 5.0}) {
      CAPTURE(lenience);
      check<3>(Both<3>{.limits = {{{1, 1, 1}, {0, 1, 1}, {0, 0, 1}}}, .lenience = lenience}, 2, 2, last);
    }
}

TEST_CASE("members whose capacity is reached within the text") {
  std::int64_t accepted = 0;
  const auto check = [&](const auto& shape, std::int32_t vocab, std::size_t horizon) {
    for (const std::int32_t room : {5, 6, 7, 8})
      for (std::size_t tight = 0; tight < 2; ++tight) {
        CAPTURE(room);
        CAPTURE(tight);
        ToyModel target(vocab, 1), first(vocab, 2, 2.0f, tight == 0 ? room : 64),
            second(vocab, 3, 2.0f, tight == 1 ? room : 64);
        Speculator run{TreeVerifier{target, Rejection{}},
                       Stack{ModelDrafter{first}, ModelDrafter{second}, HashGram(vocab, 4, 0.3)}, shape};
        CHECK(whole_distribution(run, target, kPlain, prompt_for(vocab), horizon).error < 1e-12);
        accepted += run.stats().new_tokens - run.stats().rounds;
      }
  };
  check(Down<3>{.reviews = 1, .length = 1, .lenience = 2}, 2, 3);
  check(Across<3>{.counts = {1, 1, 1}}, 2, 3);
  check(Both<3>{.limits = {{{1, 1, 1}, {0, 1, 1}, {0, 0, 1}}}}, 2, 2);
  CHECK(accepted > 1000);
}

TEST_CASE("whole pipelines over several rounds, their uniform draws and caches") {
  const double l = 3;
  const Both<3> both{.limits = {{{1, 1, 1}, {0, 1, 1}, {0, 0, 1}}}, .lenience = l};
  const Down<2> down{.reviews = 1, .length = 1, .lenience = l};
  CHECK(distribution_of<2>(2, Block{}, down, kPlain, 4, 7, Last::dense, true).error < 1e-12);
  CHECK(distribution_of<2>(2, Rejection{}, Across<2>{.counts = {2, 1}}, kPlain, 3, 7, Last::points, true)
            .error < 1e-12);
  CHECK(distribution_of<3>(2, Block{}, both, kPlain, 2, 7, Last::points, true).error < 1e-12);
  CHECK(distribution_of<3>(2, Rejection{}, both, kWarm, 3, 8, Last::points, true).error < 1e-12);
  const EmittedDistribution greedy = distribution_of<3>(
      4, Greedy{}, Cascade<3>{.limits = {{{2, 1, 2}, {0, 1, 2}, {0, 0, 2}}}, .lenience = l}, kPlain, 1, 7,
      Last::points, true);
  CHECK(greedy.error > 0.1);  // Greedy is not exact for a temperature: the check can fail
}
