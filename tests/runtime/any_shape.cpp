// SPDX-License-Identifier: MIT
// AnyShape and AnyDrafter: type-erased shapes and drafters.
#include <specula/runtime/any_shape.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <specula/accept/exact_rules.hpp>
#include <specula/run/speculator.hpp>
#include <specula/runtime/any_drafter.hpp>
#include <specula/runtime/any_model.hpp>
#include <specula/shape/beam.hpp>
#include <specula/shape/chain.hpp>
#include <specula/shape/cost_aware.hpp>
#include <specula/shape/dynamic_tree.hpp>
#include <specula/shape/sampled_tree.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "toy_model.hpp"

using namespace specula;
using specula_test::ToyModel;

namespace {

struct Run {
  std::vector<Token> text;
  std::int64_t proposed;
  bool operator==(const Run&) const = default;
};

template <class D, class S>
Run run_of(ToyModel& target, D drafter, S shape) {
  Speculator run{TreeVerifier{target, Sampling{}, {.temperature = 0.9f}}, std::move(drafter),
                 std::move(shape)};
  PhiloxRandom rng(3);
  const std::vector<Token> prompt{1, 5, 2};
  run.generate(prompt, {.max_new_tokens = 80}, rng, [](Tokens) {});
  return {{run.text().begin(), run.text().end()}, run.stats().proposed};
}

/// The same proposals and text with static types and with erased ones.
template <class S>
void check_same(S shape) {
  ToyModel target(12, 7, 2.0f, 256), draft(12, 9, 1.0f, 256);
  const Run known = run_of(target, ModelDrafter{draft}, shape);
  const Run any = run_of(target, AnyDrafter(ModelDrafter{draft}), AnyShape<AnyDrafter, S::kind>(shape));
  CHECK(any == known);
  CHECK(known.proposed > 0);
}

/// Has all optional members, and records the order of their calls.
struct Told {
  static constexpr ProposalKind kind = ProposalKind::deterministic;
  std::vector<int>* calls;
  std::int32_t length = 3;
  NodeCounts nodes() const { return {.most = 4, .least = 3, .drafted = 9}; }
  void validate() const {
    if (length > 3) throw std::invalid_argument("Told: length");
  }
  void reserve(const Sizes&) { calls->push_back(1); }
  void reset() { calls->push_back(2); }
  void propose(AnyDrafter&, const ProposeContext&, ProposalBuilder&, PhiloxRandom&) { calls->push_back(3); }
  void learn(const TokenTree&, const VerifyResult&, const Timing&) { calls->push_back(4); }
  std::vector<Reviews> reviews{2};
  std::span<const Reviews> reviewed() const { return reviews; }
};

}  // namespace

TEST_CASE("a type-erased shape makes the same proposals") {
  check_same(Chain<>{.length = 4});
  check_same(Chain<Draw::sampled>{.length = 3});
  check_same(Beam{.width = 2, .length = 3});
  check_same(DynamicTree{.top_k = 3, .expansions = 2, .total = 9});
  check_same(SampledTree<ProposalKind::sampled_distinct>{});
  check_same(CostAware(Chain<>{.length = 4}, CostCurve({1.0, 1.1, 1.2, 1.3, 1.4}), CostCurve({0.1})));
}

TEST_CASE("optional members of a type-erased shape are called if it has them") {
  ToyModel target(12, 7, 2.0f, 256), draft(12, 9, 1.0f, 256);
  std::vector<int> calls;
  using Shape = AnyShape<AnyDrafter, ProposalKind::deterministic>;
  const Shape plain(Chain<>{.length = 4}), told(Told{.calls = &calls});
  CHECK(plain.nodes().most == 5);
  CHECK(plain.nodes().least == 2);
  CHECK(plain.nodes().drafted == 5);
  CHECK(plain.reviewed().empty());
  CHECK(told.nodes().least == 3);
  CHECK(told.nodes().drafted == 9);
  CHECK(told.reviewed().size() == 2);
  run_of(target, AnyDrafter(ModelDrafter{draft}), Shape(Told{.calls = &calls}));
  REQUIRE(calls.size() > 4);
  CHECK(std::vector<int>(calls.begin(), calls.begin() + 4) == std::vector<int>{1, 2, 3, 4});
  CHECK_THROWS_WITH_AS(
      run_of(target, AnyDrafter(ModelDrafter{draft}), Shape(Told{.calls = &calls, .length = 4})),
      "Told: length", std::invalid_argument);
}
