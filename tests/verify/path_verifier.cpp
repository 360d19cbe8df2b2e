// SPDX-License-Identifier: MIT
// PathVerifier: verification path by path, for models without tree attention.
#include <specula/verify/path_verifier.hpp>

#include <doctest/doctest.h>

#include "exact_distribution.hpp"

#include "count_allocations.hpp"  // after the library: clang's intrinsics declare posix_memalign without noexcept

using namespace specula;
using namespace specula_test;

namespace {
using List = std::vector<Token>;
using Distinct = SampledTree<ProposalKind::sampled_distinct>;

/// A model without trees: a node's parent must be the node before.
struct NoTrees : ToyModel {
  using ToyModel::ToyModel;
  LogitsView extend(Tokens tokens, Nodes parents) {
    for (std::size_t i = 0; i < parents.size(); ++i)
      if (parents[i] != last + static_cast<NodeId>(i)) throw std::invalid_argument("NoTrees: a branch");
    last += static_cast<NodeId>(parents.size());
    LogitsView rows = ToyModel::extend(tokens, parents);
    if (lose_a_row) --rows.rows;
    if (overlap) rows.stride = 0;
    return rows;
  }
  void append(Tokens tokens) { last = kNoParent, ToyModel::append(tokens); }
  void commit(Nodes path) { last = kNoParent, ToyModel::commit(path); }
  void truncate(std::int32_t n) { last = kNoParent, ToyModel::truncate(n); }
  NodeId last = kNoParent;
  bool lose_a_row = false;
  bool overlap = false;
};
static_assert(Verifier<PathVerifier<NoTrees, Sampling>>);

template <class Rule, class Shape>
double error_of(Rule rule, Shape shape) {
  NoTrees target(3, 6);
  ToyModel draft(3, 7);
  const SamplingParams params{.temperature = 0.8f};
  Speculator run{PathVerifier{target, rule, params}, ModelDrafter{draft}, shape};
  return composed_distribution(run, static_cast<const ToyModel&>(target), params, {0, 1, 2}, 3).error;
}
}  // namespace

TEST_CASE("the text has the target's distribution without a tree pass") {
  CHECK(error_of(Sampling{}, Chain<Draw::sampled>{.length = 2}) < 1e-12);
  CHECK(error_of(Sampling{}, Cape{.length = 2, .budget = 6, .extras = CapeExtras::fixed(1)}) < 1e-12);
  CHECK(error_of(Rejection{}, Distinct{.widths = {2, 1}}) < 1e-12);
}

TEST_CASE("texts and uniform draws are those of a TreeVerifier") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    NoTrees chains(9, seed, 2.0f, 200);
    ToyModel trees(9, seed, 2.0f, 200), draft(9, seed, 1.0f, 200);
    const auto text = [&](auto verifier) {
      List out;
      Speculator run{verifier, ModelDrafter{draft}, Distinct{.widths = {3, 2, 1}}};
      run.generate(List{1, 2}, {.max_new_tokens = 40}, PhiloxRandom{seed},
                   [&](Tokens fresh) { out.insert(out.end(), fresh.begin(), fresh.end()); });
      return out;
    };
    CHECK(text(PathVerifier{chains, Traversal{}}) == text(TreeVerifier{trees, Traversal{}}));
  }
}

TEST_CASE("one pass per leaf; the last path is committed, another one is appended") {
  NoTrees target(5, 3);
  PathVerifier verifier{target, Greedy{}};
  verifier.append(List{1, 2});
  std::vector<float> row(5);
  target.row(2, 3, row.data());
  const auto best = static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
  const Token wrong = best == 0 ? 1 : 0;
  ProposalBuilder tree(5, 8, 0);
  PhiloxRandom rng(1);
  for (const bool last : {true, false}) {
    target.truncate(2);
    target.appends = target.calls = 0;
    const Usage before = verifier.usage();
    tree.reset(3, 2);
    tree.choose(0, last ? wrong : best, 1);
    tree.choose(0, last ? best : wrong, 1);
    const VerifyResult& result = verifier.run_round(tree, rng);
    CHECK(result.accepted == std::vector<NodeId>{0, last ? 2 : 1});
    CHECK(target.cache() == List{1, 2, 3, best});
    CHECK(target.calls == 2);
    CHECK(target.appends == (last ? 0 : 1));
    CHECK((verifier.usage() - before).nodes == 4);
  }
}

TEST_CASE("one model as target and draft is an error of the constructor") {
  ToyModel model(3, 1);
  CHECK_THROWS_WITH_AS((Speculator{PathVerifier{model, Sampling{}}, ModelDrafter{model}, Chain<>{}}),
                       doctest::Contains("the same model is target and draft"), std::invalid_argument);
}

TEST_CASE("errors keep the committed context, and name the cause") {
  NoTrees target(5, 3);
  PathVerifier verifier{target, Greedy{}};
  verifier.append(List{1, 2});
  ProposalBuilder tree(5, 8, 0);
  tree.reset(3, 2);
  tree.choose(0, 4, 1);
  tree.choose(0, 1, 1);
  PhiloxRandom rng(1);
  target.throw_call = 2;  // the second path
  CHECK_THROWS_WITH(verifier.run_round(tree, rng), "extend failed");
  CHECK(target.cache() == List{1, 2});
  target.lose_a_row = true;
  CHECK_THROWS_WITH_AS(verifier.run_round(tree, rng),
                       "PathVerifier: the target gave 1 rows of 5 logits for a path of 2 nodes over 5 tokens",
                       std::invalid_argument);
  target.lose_a_row = false, target.overlap = true;
  CHECK_THROWS_WITH_AS(verifier.run_round(tree, rng),
                       "PathVerifier: the target's rows of 5 logits are 0 floats apart: they overlap",
                       std::invalid_argument);
  target.overlap = false;
  ProposalBuilder root(5, 1, 0);
  root.reset(3, 2);
  target.poison_call = target.calls + 1;
  CHECK_THROWS_WITH_AS((PathVerifier{target, Sampling{}}.run_round(root, rng)),
                       doctest::Contains("the target's row after node 0: "), std::runtime_error);
  CHECK(target.cache() == List{1, 2});
  CHECK(verifier.run_round(tree, rng).accepted.size() >= 1);
  CHECK_THROWS_WITH_AS(
      verifier.run_round(tree, rng),
      doctest::Contains("PathVerifier::run_round: the proposal follows 2 tokens, but the target"),
      std::logic_error);
  CHECK_THROWS_WITH_AS((PathVerifier{target, Greedy{}, {.top_p = 2}}), doctest::Contains("top_p"),
                       std::invalid_argument);
}

TEST_CASE("a proposal larger than the workspace is an error") {
  NoTrees target(5, 3);
  PathVerifier verifier{target, Greedy{}};
  PhiloxRandom rng(1);
  const auto verify = [&](std::int32_t nodes) {
    ProposalBuilder tree(5, nodes, 0);
    tree.reset(3, target.size());
    while (tree.size() < nodes) tree.choose(tree.size() - 1, 4, 1);
    verifier.run_round(tree, rng);
  };
  verify(8);
  target.truncate(0);
  CHECK_THROWS_WITH_AS(verify(40), "PathVerifier: a proposal of 40 nodes, a workspace for 8",
                       std::invalid_argument);
  CHECK(target.cache().empty());
  verifier.reserve({.nodes = 40});
  verify(40);
}

TEST_CASE("rounds allocate nothing") {
  NoTrees target(50, 1, 2.0f, 400);
  ToyModel small(50, 2, 2.0f, 400);
  Speculator run{PathVerifier{target, Traversal{}}, ModelDrafter{small}, Distinct{.widths = {2, 2}}};
  run.start(List{1, 2});
  PhiloxRandom rng(1);
  const AllocationCount counted;
  for (int round = 0; round < 30; ++round) run.step(rng);
  CHECK(counted.count() == 0);
}
