// A round allocates nothing, whatever the shape and the rule.
#include <doctest/doctest.h>

#include <specula/accept/k_seq.hpp>
#include <specula/specula.hpp>

#include <utility>
#include <vector>

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Iid = SampledTree<DraftLaw::sampled_iid>;
using Distinct = SampledTree<DraftLaw::sampled_distinct>;

/// No allocation from the first round on, and that something was proposed.
template <class Rule, class Shape>
void check(Rule rule, Shape shape, std::int32_t least_nodes, const SamplingParams& params = {}) {
  constexpr std::int32_t kVocab = 700, kCapacity = 1200;
  ToyModel target(kVocab, 1, 8.0f, kCapacity), draft(kVocab, 1, 5.0f, kCapacity);
  Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, std::move(shape)};
  const std::vector<Token> prompt = {1, 2, 3};
  run.start(prompt);
  PhiloxChance chance(7);
  if (params.cuts()) run.step(chance);  // the first cut makes room for itself
  std::int64_t allocated = 0;
  for (int round = 0; round < 60; ++round) {
    const AllocationCount counted;
    run.step(chance);
    allocated += counted.count();
  }
  CHECK(allocated == 0);
  CHECK(run.stats().proposed >= 60 * least_nodes);
}

}  // namespace

TEST_CASE("chains") {
  check(Sampling{}, Chain<>{.length = 4}, 4);
  check(Traversal{}, Chain<>{.length = 4}, 4);
  check(Block{}, Chain<Draw::sampled>{.length = 4}, 4);
  check(Traversal{}, Chain<Draw::sampled>{.length = 4, .exit_below = 0.01f}, 1,
        {.temperature = 0.8f, .top_k = 9});
}

TEST_CASE("trees of likely guesses") {
  check(Sampling{}, Cape{}, 8);
  check(Traversal{}, Cape{.extras = CapeExtras::fixed(7)}, 32);
  check(Rejection{}, Beam{}, 4);
  check(Sampling{}, DynamicTree{}, 59);
  check(Traversal{}, DynamicTree{}, 59, {.top_p = 0.9f});
}

TEST_CASE("trees of draws") {
  check(Sampling{}, Iid{}, 20);
  check(KSeq{}, Iid{}, 20);
  check(Rejection{}, Distinct{}, 20);
  check(Traversal{}, Distinct{}, 20, {.temperature = 0.7f, .top_p = 0.9f});
  check(SampleAndMatch{}, Distinct{}, 20);
}

TEST_CASE("cost-aware, with curves that are given and with learned ones") {
  const CostCurve target({1, 1.01}), draft({0.01});
  check(Sampling{}, CostAware(Cape{}, target, draft), 1);
  check(Sampling{}, CostAware(DynamicTree{}, target, draft), 1);
  check(Sampling{}, CostAware(Beam{}, target, draft), 1);
  check(Sampling{}, CostAware(Distinct{}, target, draft), 1);
  check(Sampling{}, CostAware(Chain<Draw::sampled>{}, target, draft), 1);
  check(Sampling{}, CostAware(DynamicTree{}), 0);
  check(Sampling{}, CostAware(Cape{}), 0);
  check(Block{}, CostAware(Chain<Draw::sampled>{}), 0);
}
