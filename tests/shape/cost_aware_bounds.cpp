// SPDX-License-Identifier: MIT
// labels: optimised
// CostAware in simulated time: its loss against plain decoding is bounded, and it finds most of the gain.
#include <specula/cost/curve_cost_model.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "simulated_texts.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// Plain decoding's time over that of the shape.
template <class S>
double of_plain(const World& world, S shape) {
  return static_cast<double>(world.texts) * world.tokens / write_texts(world, std::move(shape)).spent;
}

World hopeless(double draft, std::int32_t texts) {
  World world;
  world.target = [](std::int32_t n) { return 1.0 * n; };
  world.draft = draft;
  world.catch_up = draft;
  world.skill = skill_of("overconfident", 0.6);
  world.texts = texts;
  return world;
}

}  // namespace

TEST_CASE("never more than 2% slower than plain decoding, and within 7% of the best fixed length") {
  // Every 13th of all combinations of what passes cost, of the draft, its acceptance and its calibration;
  // measured with jitter and outliers. bench_cost_aware --all runs them all.
  int trials_run = 0, gaining = 0, behind = 0;
  double reached = 0, least = 1;
  for (const Trial& trial : trials(13)) {
    CAPTURE(trial.machine);
    CAPTURE(trial.draft);
    CAPTURE(trial.acceptance);
    CAPTURE(trial.world.draft);
    CAPTURE(trial.world.tokens);
    const Run run = write_texts(trial.world, CostAware(Chain<>{.length = 8}));
    CHECK(trial.plain() / run.spent > 0.98);
    // Before any measurement: two trial draft tokens, and the initial budget.
    CHECK(run.first_text < 1.02 * trial.world.tokens + 2 + 2 * trial.world.target(2) + trial.world.draft * 2 +
                               trial.world.catch_up * trial.world.waiting);
    ++trials_run;
    // If two nodes cost as much as two passes, only a large, expensive trial shows that eight cost no more.
    if (trial.machine == "twice from 2") continue;
    const double best = trial.best();
    if (trial.plain() / best <= 1.05) continue;
    ++gaining;
    behind += best / run.spent < 0.93 ? 1 : 0;
    reached += best / run.spent, least = std::min(least, best / run.spent);
  }
  CHECK(trials_run > 80);
  CHECK(gaining > 40);
  CHECK(behind * 3 <= gaining);
  CHECK(least > 0.8);
  CHECK(reached > 0.95 * gaining);
}

TEST_CASE("if no acceptance rate could pay, trials become rarer") {
  for (const double draft : {0.02, 0.1, 0.3}) {
    const auto lost = [&](std::int32_t texts) {
      return write_texts(hopeless(draft, texts), CostAware(Chain<>{.length = 8})).spent / (texts * 128) - 1;
    };
    CHECK(lost(8) < 0.02);
    CHECK(lost(16) < 0.0175);
    CHECK(lost(64) < 0.0175);  // a share for the tokens, and whole tiles that are tried
  }
}

TEST_CASE("other shapes have the same bound") {
  for (const double draft : {0.02, 0.3}) {
    const World world = hopeless(draft, 8);
    CHECK(of_plain(world, CostAware(Chain<Draw::sampled>{.length = 8})) > 0.98);
    CHECK(of_plain(world, CostAware(Cape{.length = 4})) > 0.98);
    CHECK(of_plain(world, CostAware(DynamicTree{.top_k = 4, .expansions = 3, .total = 24})) > 0.98);
  }
}

TEST_CASE("a text that turns from prose to copying is followed") {
  World world;
  world.target = [](std::int32_t n) { return 1 + 0.3 * (n - 1); };
  world.draft = 0.02;
  world.catch_up = 0.005;
  world.texts = 3, world.tokens = 2000;
  for (const char* kind : {"turning", "blind, turning"}) {
    world.skill = skill_of(kind, 0.95);
    Trial trial{"", kind, 0.95, world};
    CHECK(trial.best() / write_texts(world, CostAware(Chain<>{.length = 8})).spent > 0.99);
  }
}

TEST_CASE("a round without draft calls does not sync the draft") {
  struct Counted : SkilledDrafter {
    using SkilledDrafter::SkilledDrafter;
    int synced = 0, extended = 0;
    void sync(Tokens context, Tokens draft_tokens) { ++synced, SkilledDrafter::sync(context, draft_tokens); }
    LogitsView extend(Tokens tokens, Nodes parents) {
      return ++extended, SkilledDrafter::extend(tokens, parents);
    }
  };
  const World world = hopeless(0.3, 1);
  Clock clock(world);
  const auto synced = [&](auto shape) {
    Counted drafter(world, clock);
    drafter.begin(0);
    ProposalBuilder tree(8, shape.nodes().most, shape.nodes().most);
    if constexpr (Reserves<std::remove_cvref_t<decltype(shape)>>) shape.reserve({});
    PhiloxRandom rng(1);
    AcceptanceEstimator record;
    for (int i = 0; i < 1000; ++i) record.saw_draft_tokens(false, false), record.saw_drafted(0.01);
    const CostCurve target({1, 2, 3}), draft({0.3});
    CurveCostModel cost_model(
        record, target, draft,
        {.rate = 1, .limit = shape.nodes().most, .chosen = shape.kind == ProposalKind::deterministic});
    const std::vector<Token> context(50);
    tree.reset(0, 50);
    shape.propose(drafter, ProposeContext{context, {}, shape.nodes().most, &cost_model}, tree, rng).run();
    CHECK(tree.size() == 1);
    CHECK(drafter.extended == 0);
    return drafter.synced;
  };
  CHECK(synced(Chain<>{}) == 0);
  CHECK(synced(Chain<Draw::sampled>{}) == 0);
  CHECK(synced(Cape{}) == 0);
  CHECK(synced(Beam{}) == 0);
  CHECK(synced(DynamicTree{}) == 0);
  CHECK(synced(SampledTree<ProposalKind::sampled_distinct>{}) == 0);
}

TEST_CASE("given curves keep the bound without a clock") {
  World world = hopeless(0.1, 8);
  std::vector<double> target, draft;  // the draft's pass over n nodes, and its catch-up with n tokens
  for (int n = 1; n <= 9; ++n) target.push_back(n), draft.push_back(0.1 * n);
  CHECK(of_plain(world, CostAware(Chain<>{.length = 8}, CostCurve(target), CostCurve(draft))) > 0.98);
}
