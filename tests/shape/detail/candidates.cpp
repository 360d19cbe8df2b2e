// SPDX-License-Identifier: MIT
// Pools of candidates of Beam and DynamicTree.
#include <specula/shape/detail/candidates.hpp>

#include <specula/cost/curve_cost_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "scripted_drafter.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

namespace {

const Text kContext = {0, 1, 0};

ProposeContext round_of(CostModel* cost_model = nullptr) { return {kContext, {}, 100, cost_model}; }

/// A random pool, parents before children; every third reach ties with its parent's or another's.
void fill(Candidates& work, Random& random, std::int32_t count) {
  work.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t parent = random.below(i + 1) - 1;
    const double above = parent < 0 ? 1 : work[parent].reach;
    const double prob = random.bernoulli(0.3) ? 1.0 : random.bernoulli(0.5) ? 0.5 : random.uniform();
    work.add({random.below(10), prob}, parent, above * prob);
  }
}
std::vector<std::int32_t> in_order(Candidates& work) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(work.size()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int32_t>(i);
  std::sort(out.begin(), out.end(), [&](int a, int b) {
    return work[a].reach != work[b].reach ? work[a].reach > work[b].reach : a < b;
  });
  return out;
}

}  // namespace

TEST_CASE(
    "keep_best is the beginning of a full sort, ties to the older; ancestors are dropped after their "
    "descendants") {
  Random random(1);
  Candidates work;
  for (int i = 0; i < 500; ++i) {
    fill(work, random, random.below(40));
    for (const std::int32_t most : {-1, 0, 1, random.below(40), 1000}) {
      work.list_all();
      CHECK(work.listed.size() == static_cast<std::size_t>(work.size()));
      work.keep_best(most);
      std::vector<std::int32_t> want = in_order(work);
      if (want.size() > static_cast<std::size_t>(std::max(0, most)))
        want.resize(static_cast<std::size_t>(std::max(0, most)));
      std::sort(want.begin(), want.end());
      std::vector<std::int32_t> got = work.listed;
      std::sort(got.begin(), got.end());
      CHECK(got == want);
      for (const std::int32_t c : got)
        CHECK((work[c].parent < 0 || std::binary_search(got.begin(), got.end(), work[c].parent)));
      work.list_all();
      work.prune(most, round_of(), 1);
      CHECK(work.listed == want);
    }
  }
}

TEST_CASE("settle keeps the prefix of the full sort with the best value") {
  Random random(2);
  Candidates work;
  AcceptanceEstimator estimator;
  int some = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<double> seconds{1.0};
    for (int n = 1; n < 40; ++n)
      seconds.push_back(seconds.back() + (random.bernoulli(0.4) ? 0.0 : 0.6 * random.uniform()));
    const CostCurve target(seconds), draft({0.1});
    CurveCostModel cost_model(estimator, target, draft, {.rate = 1});
    fill(work, random, random.below(30));
    const std::int32_t most = random.below(20), nodes = 1 + random.below(5);
    std::vector<std::int32_t> want = in_order(work);
    if (want.size() > static_cast<std::size_t>(most)) want.resize(static_cast<std::size_t>(most));
    std::vector<double> probabilities;
    for (const std::int32_t c : want) probabilities.push_back(work[c].reach);
    want.resize(static_cast<std::size_t>(cost_model.best_count(probabilities, nodes)));
    some += !want.empty() && want.size() < probabilities.size();
    std::sort(want.begin(), want.end());
    work.list_all();
    work.prune(most, round_of(&cost_model), nodes);
    CHECK(work.listed == want);
  }
  CHECK(some > 50);
}

TEST_CASE("list_ancestors: each once, none missing") {
  Random random(3);
  Candidates work;
  for (int i = 0; i < 300; ++i) {
    fill(work, random, 1 + random.below(30));
    work.listed.clear();
    std::vector<bool> want(static_cast<std::size_t>(work.size()));
    for (std::int32_t n = random.below(4); n >= 0; --n) {
      std::int32_t c = random.below(work.size());
      if (std::find(work.listed.begin(), work.listed.end(), c) == work.listed.end()) work.listed.push_back(c);
      for (; c >= 0; c = work[c].parent) want[static_cast<std::size_t>(c)] = true;
    }
    work.list_ancestors();
    std::vector<int> got(want.size());
    for (const std::int32_t c : work.listed) ++got[static_cast<std::size_t>(c)];
    for (std::size_t c = 0; c < want.size(); ++c) CHECK(got[c] == (want[c] ? 1 : 0));
  }
}

TEST_CASE("top_k of rows with few tokens") {
  ProposalBuilder tree(5, 3, 0);
  tree.reset(0, 0);
  Candidates work;  // not reserved: it grows
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> row = {none, 2, none, 3, 2};
  const auto top = work.top_k(tree, 0, row, 4);
  REQUIRE(top.size() == 3);
  CHECK(top[0].token == 3);
  CHECK(top[1].token == 1);
  CHECK(top[2].token == 4);
  CHECK(work.top_k(tree, 0, row, 2).size() == 2);
}

TEST_CASE(
    "expand runs the root, then the frontier, in the drafter's node numbers; plant adds parents first") {
  const RowOf rows = random_rows(9, 1, 2);
  ScriptedDrafter drafter(9, rows);
  drafter.sync(kContext, {});
  ProposalBuilder tree(9, 30, 0);
  tree.reset(1, 3);
  Candidates work;
  NodeId drafted = 0;
  const ProposeContext round = round_of();
  for (int level = 0; level < 4; ++level) {
    REQUIRE(expansion(drafter, round, work, level, drafted).width > 0);
    expand(round, tree, work, ask_frontier(drafter, round, tree, work).now(), 3, drafted);
    CHECK(drafted == 1 + 3 * level);
    CHECK(work.frontier.size() == 3);
    CHECK(std::is_sorted(work.frontier.begin(), work.frontier.end()));
    for (const std::int32_t f : work.frontier)
      CHECK(f >= work.size() - (level == 0 ? 3 : 9));  // of the newest
  }
  CHECK(work.size() == 3 + 27);
  Text text;
  for (std::int32_t i = 0; i < work.size(); ++i) {  // every candidate's confidence is from its parent's row
    text.clear();
    for (std::int32_t c = work[i].parent; c >= 0; c = work[c].parent)
      text.insert(text.begin(), work[c].token);
    text.insert(text.begin(), {0, 1, 0, 1});
    const std::vector<Top> best = ranked(rows(text));
    const double above = work[i].parent < 0 ? 1 : work[work[i].parent].reach;
    CHECK(std::any_of(best.begin(), best.begin() + 3, [&](const Top& top) {
      return top.token == work[i].token && work[i].reach == above * top.prob;
    }));
  }
  work.list_all();
  work.keep_best(12);
  std::sort(work.listed.begin(), work.listed.end());
  build_tree(tree, work);
  CHECK(tree.size() == 13);
  for (const std::int32_t c : work.listed) {
    CHECK(tree.token(work[c].node) == work[c].token);
    CHECK(tree.parent(work[c].node) == (work[c].parent < 0 ? 0 : work[work[c].parent].node));
  }
}

TEST_CASE("a draft call: not beyond the drafter's capacity, not without a frontier, not if it does not pay") {
  ScriptedDrafter drafter(9, random_rows(9, 1, 2), 3 + 4);
  drafter.sync(kContext, {});
  ProposalBuilder tree(9, 30, 0);
  tree.reset(1, 3);
  Candidates work;
  NodeId drafted = 0;
  CHECK(expansion(drafter, round_of(), work, 0, 3).width > 0);
  CHECK(expansion(drafter, round_of(), work, 0, 4).width == 0);
  expand(round_of(), tree, work, ask_frontier(drafter, round_of(), tree, work).now(), 3, drafted);
  CHECK(expansion(drafter, round_of(), work, 1, drafted).width > 0);  // 1 + 3 of 4
  CHECK(expansion(drafter, round_of(), work, 1, drafted + 1).width == 0);
  work.frontier.clear();
  CHECK(expansion(drafter, round_of(), work, 1, drafted).width == 0);

  AcceptanceEstimator estimator;  // any_probability is 1 / 2
  const CostCurve target({1, 1.1, 1.3, 1.6}), draft({0.2, 0.3, 0.4});
  ScriptedDrafter large(9, random_rows(9, 1, 2));
  const auto pays = [&](double rate, std::int32_t level) {
    CurveCostModel cost_model(estimator, target, draft, {.rate = rate});
    const ProposeContext round = round_of(&cost_model);
    return round.call_pays(tree, expansion(large, round, work, level, drafted)).now();
  };
  CHECK(pays(1.6, 0));  // .5 >= 1.6 * (.2 + .1)
  CHECK_FALSE(pays(1.7, 0));
  large.sync(kContext, {});
  work.clear();
  drafted = 0;
  expand(round_of(), tree, work, ask_frontier(large, round_of(), tree, work).now(), 2, drafted);
  const double reach = work[work.frontier[0]].reach + work[work.frontier[1]].reach;
  const double limit = reach / 2 / (0.3 + 0.2);  // two nodes drafted, a third verified
  CHECK(pays(0.99 * limit, 1));
  CHECK_FALSE(pays(1.01 * limit, 1));
}
