// SPDX-License-Identifier: MIT
// Steady rounds allocate nothing, for any shape and rule.
#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "every_shape.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Distinct = SampledTree<ProposalKind::sampled_distinct>;
using Drawn = StaticTree<ProposalKind::sampled_distinct>;

/// Checks that rounds allocate nothing and propose something.
template <class Rule, class Shape>
void check(Rule rule, Shape shape, std::int32_t least_nodes, const SamplingParams& params = {}) {
  constexpr std::int32_t kVocab = 700, kCapacity = 1200;
  ToyModel target(kVocab, 1, 8.0f, kCapacity), draft(kVocab, 1, 5.0f, kCapacity);
  Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, std::move(shape)};
  const std::vector<Token> prompt = {1, 2, 3};
  run.start(prompt);
  PhiloxRandom rng(7);
  if (params.truncates()) run.step(rng);  // the first truncation makes room for itself
  std::int64_t allocated = 0;
  for (int round = 0; round < 60; ++round) {
    const AllocationCount counted;
    run.step(rng);
    allocated += counted.count();
  }
  CHECK(allocated == 0);
  CHECK(run.stats().proposed >= 60 * least_nodes);
}

}  // namespace

TEST_CASE("every shape, with every rule that is lossless for it") {
  for_every_shape([](const auto& shape, Enumerable) {
    for_every_rule<std::remove_cvref_t<decltype(shape)>::kind>(
        [&](const OneRule& rule) { check(rule, shape, 1); });
  });
}

TEST_CASE("large ones, truncated") {
  check(Traversal{}, Chain<Draw::sampled>{.length = 4, .exit_below = 0.01f}, 1,
        {.temperature = 0.8f, .top_k = 9});
  check(Traversal{}, Cape{.extras = CapeExtras::fixed(7)}, 32);
  check(Traversal{}, DynamicTree{}, 59, {.top_p = 0.9f});
  check(Sampling{}, StaticTree<>{}, 25);
  check(Traversal{}, Distinct{}, 20, {.temperature = 0.7f, .top_p = 0.9f});
  check(Rejection{}, Drawn{}, 10, {.temperature = 0.7f, .top_p = 0.9f});
}

TEST_CASE("cost-aware shapes, with given curves and with learned ones") {
  const CostCurve target({1, 1.01}), draft({0.01});
  check(Sampling{}, CostAware(Cape{}, target, draft), 1);
  check(Sampling{}, CostAware(DynamicTree{}, target, draft), 1);
  check(Sampling{}, CostAware(Beam{}, target, draft), 1);
  check(Sampling{}, CostAware(Distinct{}, target, draft), 1);
  check(Sampling{}, CostAware(StaticTree<>{}, target, draft), 1);
  check(Sampling{}, CostAware(Drawn{}, target, draft), 1);
  check(Sampling{}, CostAware(Chain<Draw::sampled>{}, target, draft), 1);
  check(Sampling{}, CostAware(DynamicTree{}), 0);
  check(Sampling{}, CostAware(Cape{}), 0);
  check(Block{}, CostAware(Chain<Draw::sampled>{}), 0);
}

TEST_CASE("either a model or Max-Gram") {
  constexpr std::int32_t kVocab = 700, kCapacity = 1200;
  ToyModel target(kVocab, 1, 8.0f, kCapacity), small(kVocab, 1, 5.0f, kCapacity);
  Speculator run{TreeVerifier{target, Sampling{}}, Stack{ModelDrafter{small}, MaxGram(kVocab)},
                 Either(Chain<Draw::sampled>{.length = 6})};
  run.start(std::vector<Token>{1, 2, 3, 1, 2});
  PhiloxRandom rng(7);
  run.step(rng);
  const AllocationCount counted;
  for (int round = 0; round < 200; ++round) run.step(rng);
  CHECK(counted.count() == 0);
  CHECK(run.stats().drafters[0].calls > 0);
  CHECK(run.stats().drafters[1].calls > 0);
}

TEST_CASE("cascades of two models and Max-Gram") {
  const auto allocated = [](auto rule, auto shape, const SamplingParams& params) {
    constexpr std::int32_t kVocab = 700, kCapacity = 1200;
    ToyModel target(kVocab, 1, 8.0f, kCapacity), base(kVocab, 1, 6.0f, kCapacity),
        small(kVocab, 1, 5.0f, kCapacity);
    Speculator run{TreeVerifier{target, rule, params},
                   Stack{ModelDrafter{base}, ModelDrafter{small}, MaxGram(kVocab)}, shape};
    run.start(std::vector<Token>{1, 2, 3, 1, 2});
    PhiloxRandom rng(7);
    run.step(rng);  // the first truncation makes room for itself
    std::int64_t sum = 0;
    for (int round = 0; round < 40; ++round) {
      const AllocationCount counted;
      run.step(rng);
      sum += counted.count();
    }
    CHECK(run.stats().proposed >= 40 * 3);
    CHECK(run.stats().drafters[0].calls > 40);
    CHECK(run.stats().drafters[2].calls > 0);
    return sum;
  };
  const SamplingParams greedy{.temperature = 0}, warm{}, truncated{.temperature = 0.8f, .top_k = 9};
  const std::array<std::array<std::int32_t, 3>, 3> limits = {{{5, 3, 4}, {0, 1, 4}, {0, 0, 4}}};
  CHECK(allocated(Greedy{}, Horizontal<3>{.counts = {3, 2, 3}}, greedy) == 0);
  CHECK(allocated(Block{}, Horizontal<3, Draw::sampled>{.counts = {3, 2, 3}}, warm) == 0);
  for (const double lenience : {1.0, 3.0}) {
    CAPTURE(lenience);
    CHECK(allocated(Greedy{}, Vertical<3>{.reviews = 3, .lenience = lenience}, greedy) == 0);
    CHECK(allocated(Greedy{}, Cascade<3>{.limits = limits, .lenience = lenience}, greedy) == 0);
    for (const SamplingParams& params : {warm, truncated}) {
      CHECK(allocated(Sampling{}, Vertical<3, Draw::sampled>{.reviews = 3, .lenience = lenience}, params) ==
            0);
      CHECK(allocated(Block{}, Cascade<3, Draw::sampled>{.limits = limits, .lenience = lenience}, params) ==
            0);
    }
  }
}
