// SPDX-License-Identifier: MIT
// labels: optimised
// Every shape: no draft token follows a stop token, and no drafter is asked for one. (That the text keeps its
// distribution is shown in tests/exact.)
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <specula/accept/exact_rules.hpp>
#include <specula/draft/model_drafter.hpp>
#include <specula/draft/stack.hpp>
#include <specula/run/speculator.hpp>
#include <specula/shape/cost_aware.hpp>
#include <specula/shape/either.hpp>
#include <specula/shape/sampled_tree.hpp>
#include <specula/verify/tree_verifier.hpp>

#include "every_shape.hpp"
#include "scripted_drafter.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 5;
constexpr Token kStop = 3;
const Text kContext = {0, 1, kStop};

/// Rows that throw behind a stop token of the draft: after the context and the root.
RowOf guarded(RowOf row_of) {
  return [row_of](const Text& text) {
    if (text.size() > kContext.size() + 1 && text.back() == kStop)
      throw std::logic_error("the draft is asked for what follows a stop token");
    return row_of(text);
  };
}
RowOf guarded_rows(std::uint64_t seed) { return guarded(random_rows(kVocab, seed, 3)); }

/// Every row is sure of the stop token.
std::vector<float> sure(const Text&) {
  std::vector<float> row(kVocab, 0.0f);
  row[kStop] = 100.0f;
  return row;
}

/// A proposal of `drafter`; throws if a draft token follows a stop token, or if a drafter is asked for one.
template <class S, class D>
std::int32_t propose(S shape, D drafter, Token root, std::uint64_t seed, std::int64_t& ended) {
  ProposalBuilder tree(kVocab, shape.nodes().most, shape.nodes().most);
  if constexpr (Reserves<S>) shape.reserve({});
  tree.reset(root, static_cast<std::int32_t>(kContext.size()));
  PhiloxRandom rng(seed);
  shape.propose(drafter, ProposeContext{kContext, {}, shape.nodes().most, nullptr, {&kStop, 1}}, tree, rng)
      .run();
  for (NodeId node = 1; node < tree.size(); ++node) {
    ended += tree.token(node) == kStop;
    if (tree.parent(node) != 0 && tree.token(tree.parent(node)) == kStop)
      throw std::logic_error("a draft token follows a stop token");
  }
  return tree.size();
}

/// Shapes whose levels are one call each, so that it has nodes behind a stop token beside others.
template <class S>
inline constexpr bool kSharesCalls = false;
template <ProposalKind how>
inline constexpr bool kSharesCalls<SampledTree<how>> = true;

template <class S>
void alone(const S& shape) {
  std::int64_t ended = 0, sizes = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (const Token root : {1, kStop}) {  // the text goes on after the root, whatever that is
      const RowOf rows = kSharesCalls<S> ? random_rows(kVocab, seed, 3) : guarded_rows(seed);
      CHECK_NOTHROW(sizes += propose(shape, ScriptedDrafter(kVocab, rows), root, seed, ended) > 1);
    }
  CHECK(sizes == 120);
  CHECK(ended > 20);
}

template <std::size_t members, class S>
void cascade(const S& shape) {
  std::int64_t ended = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    for (const Token root : {1, kStop}) {
      const auto member = [&](std::uint64_t i) {
        return ScriptedDrafter(kVocab, guarded_rows(10 * seed + i));
      };
      if constexpr (members == 2)
        CHECK_NOTHROW(CHECK(propose(shape, Stack{member(0), member(1)}, root, seed, ended) > 1));
      else
        CHECK_NOTHROW(CHECK(propose(shape, Stack{member(0), member(1), member(2)}, root, seed, ended) > 1));
    }
  CHECK(ended > 20);
}

}  // namespace

TEST_CASE("every shape over one drafter") {
  for_every_shape([](const auto& shape, Enumerable) { alone(shape); });
  alone(Chain<Draw::shared>{.length = 4});
  alone(CostAware(Chain<>{.length = 4}, CostCurve({1}), CostCurve({0.01})));
}

TEST_CASE("sampled trees: a level's call is shared, so it is left out if all its nodes end the text") {
  const auto calls = [](auto shape, RowOf row_of) {
    std::int64_t asked = 0, ended = 0;
    propose(shape, ScriptedDrafter(kVocab, [&](const Text& text) { return ++asked, row_of(text); }), 1, 1,
            ended);
    CHECK(ended > 0);
    return asked;
  };
  CHECK(calls(SampledTree<ProposalKind::sampled_iid>{.widths = {1, 2, 2}}, sure) == 1);
  CHECK(calls(SampledTree<ProposalKind::sampled_iid>{.widths = {3, 2, 2}}, sure) == 1);
  CHECK(calls(SampledTree<ProposalKind::sampled_distinct>{.widths = {1, 1, 1}}, sure) == 1);
  std::int64_t ended = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const ScriptedDrafter drafter(kVocab, random_rows(kVocab, seed, 3));
    CHECK_NOTHROW(
        propose(SampledTree<ProposalKind::sampled_iid>{.widths = {2, 2, 1}}, drafter, 1, seed, ended));
    CHECK_NOTHROW(
        propose(SampledTree<ProposalKind::sampled_distinct>{.widths = {2, 2, 1}}, drafter, 1, seed, ended));
  }
  CHECK(ended > 100);
}

TEST_CASE("either a draft or copies") {
  struct Copier : ScriptedDrafter {  // copies the likeliest tokens, if any
    bool silent;
    Text copies = {};
    Copier(std::uint64_t seed) : ScriptedDrafter(kVocab, guarded_rows(seed)), silent(seed % 4 == 0) {}
    PointMasses extend(Tokens tokens, Nodes parents) {
      const LogitsView rows = ScriptedDrafter::extend(tokens, parents);
      copies.clear();
      for (std::int32_t i = 0; i < rows.rows; ++i)
        copies.push_back(
            silent ? kNoToken
                   : static_cast<Token>(std::ranges::max_element(rows.row(i)) - rows.row(i).begin()));
      return {copies};
    }
  };
  std::int64_t ended = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    for (const Token root : {1, kStop}) {
      const Stack stack{ScriptedDrafter(kVocab, guarded_rows(seed + 1)), Copier(seed)};
      const Either shape(Chain<>{.length = 3}, 3, CostCurve({1}), CostCurve({0.01}));
      CHECK_NOTHROW(CHECK(propose(shape, stack, root, seed, ended) > 1));
    }
  CHECK(ended > 40);
}

TEST_CASE("cascades: nothing is appended, reviewed or begun behind a stop token") {
  for_every_cascade([](const auto& shape) { cascade<2>(shape); });
  cascade<3>(Vertical<3, Draw::sampled>{.reviews = 2, .length = 2});
  cascade<3>(Cascade<3>{.limits = {{{4, 2, 2}, {0, 2, 2}, {0, 0, 2}}}, .lenience = 3});
  cascade<3>(Cascade<3, Draw::sampled>{.limits = {{{4, 2, 2}, {0, 2, 2}, {0, 0, 2}}}});
}

TEST_CASE("a beam keeps paths that end the text") {
  std::int64_t ended = 0;
  CHECK(propose(Beam{.width = 1, .length = 3}, ScriptedDrafter(kVocab, guarded(sure)), 1, 1, ended) == 2);
  CHECK(ended == 1);
}

TEST_CASE("generate() passes its stop tokens on: an own loop may, too") {
  ToyModel model(kVocab, 1), twin(kVocab, 1);
  Speculator run{TreeVerifier{model, Sampling{}, {.temperature = 0}}, ModelDrafter{twin},
                 Chain<>{.length = 6}};
  PhiloxRandom rng(1);
  run.start(kContext);
  const Text plain = [&] {
    const Tokens fresh = run.step(rng);
    return Text(fresh.begin(), fresh.end());
  }();
  REQUIRE(plain.size() == 7);
  const Token stop = plain[2];
  const auto until = std::find(plain.begin(), plain.end(), stop) - plain.begin() + 1;
  run.reset_stats();
  CHECK(run.generate(kContext, {.stop = {&stop, 1}}, rng, [](Tokens) {}) ==
        Generated{static_cast<std::int32_t>(until), FinishReason::stop_token});
  CHECK(run.stats().drafters[0].calls == until);
  CHECK(run.stats().proposed == until);
  run.start(kContext);
  CHECK(run.step(rng, {&stop, 1}).size() == static_cast<std::size_t>(until) + 1);
}
