// SPDX-License-Identifier: MIT
// BatchBudget: what a round may draft, and what all rounds together may lose.
#include <specula/cost/batch_budget.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <specula/proposal/proposal_builder.hpp>

#include "random.hpp"

using namespace specula;

namespace {

/// A budget and the rounds that it plans: chains of which the first `accepted` draft tokens are right.
struct Rounds {
  BatchBudget budget;
  DraftState draft_state;
  bool settled = false;
  std::vector<double> target{1, 2, 3, 4, 5, 6, 7, 8, 9};  // true costs
  double draft = 0.1, pace = 1;
  double once = 0;  // that the first pass over each size takes longer
  std::vector<bool> seen = std::vector<bool>(10);
  std::int32_t context = 50;
  double lost = 0, tokens = 0;  // against plain decoding
  std::int32_t drafted = 0;     // rounds
  ProposalBuilder tree{2, 9, 0};
  VerifyResult result;

  /// Begins a text.
  void start() { draft_state = {}, settled = false; }

  explicit Rounds(BatchBudget b = BatchBudget()) : budget(std::move(b)) { budget.reserve(9, 9); }

  /// Returns the nodes of the round.
  std::int32_t round(std::int32_t accepted, double confidence = 0.9) {
    draft_state.context = context;
    CurveCostModel cost_model = budget.begin(2, 9, {.catch_up = budget.catch_up(draft_state)});
    tree.reset(1, context);
    double reach = 1;
    std::int32_t calls = 0;
    while (tree.size() < cost_model.limit() && cost_model.call_pays({.reach = reach, .nodes = tree.size()})) {
      ++calls;
      if (!cost_model.node_pays(reach, confidence, tree.size())) break;
      tree.choose(tree.size() - 1, 0, static_cast<float>(confidence));
      reach *= cost_model.accept_probability(confidence);
    }
    const std::int32_t nodes = tree.size();
    result.clear();
    for (NodeId n = 1; n < nodes && n <= accepted; ++n) result.accepted.push_back(n);
    const auto size = static_cast<std::size_t>(nodes);
    const double pass = target[size - 1] + (seen[size] ? 0.0 : once);
    seen[size] = true;
    const auto got = static_cast<std::int32_t>(result.accepted.size());
    budget.see(tree, result);
    budget.learn(
        {.nodes = nodes,
         .tokens = static_cast<double>(got),
         .timing = {.target = {1, nodes, pace * pass}, .draft = {calls, calls, pace * draft * calls}},
         .drafted = draft_state,
         .settled = settled});
    draft_state.add_round(got, calls), settled = true;
    context += got;
    tokens += got, lost += pass + draft * calls - got;
    drafted += nodes > 1 ? 1 : 0;
    return nodes;
  }
};

}  // namespace

TEST_CASE("all losses together are at most 1% of the tokens and a few passes, whatever is accepted") {
  specula_test::Random random(1);
  for (int run = 0; run < 60; ++run) {
    Rounds rounds;
    const double slope = random.between(0, 1.2);
    for (std::size_t n = 1; n < 9; ++n) rounds.target[n] = rounds.target[n - 1] + slope * random.uniform();
    rounds.draft = random.between(0, 0.4);
    rounds.start();
    for (int i = 0; i < 600; ++i) {
      // the worst: accepts while the balance is low, never when it is high
      const bool kind = random.bernoulli(0.2) && rounds.budget.balance() < 1;
      rounds.round(kind ? 1 : 0);
      // the last: a round beyond the balance, of a size that was not measured
      CHECK(rounds.lost <= 1.7 + 0.01 * rounds.tokens + 1.5);
    }
  }
}

TEST_CASE("the first round of a text and the second measure plain decoding; then two nodes are tried") {
  Rounds rounds;
  rounds.start();
  CHECK(rounds.round(0) == 1);
  CHECK(rounds.budget.rate() == 0);
  CHECK(rounds.round(0) == 1);
  CHECK(rounds.budget.rate() > 0);
  CHECK(rounds.round(0) == 2);
  CHECK(rounds.budget.target_costs().at_most(2) == doctest::Approx(2 * rounds.budget.target_costs()(1)));
}

TEST_CASE("flat passes: after two texts of 24 tokens it drafts as much as it may") {
  Rounds rounds;
  std::fill(rounds.target.begin(), rounds.target.end(), 1.0);
  rounds.draft = 0.02;
  std::int32_t most = 0;
  for (int text = 0; text < 2; ++text) {
    rounds.start();
    for (const double end = rounds.tokens + 24; rounds.tokens < end;) most = std::max(most, rounds.round(8));
  }
  CHECK(most == 9);
  CHECK(rounds.tokens > 2 * (rounds.tokens + rounds.lost));  // twice as fast as plain decoding
}

TEST_CASE("what an engine does once for each size is not taken for the cost of the size") {
  Rounds rounds;
  std::fill(rounds.target.begin(), rounds.target.end(), 1.0);
  rounds.draft = 0.02, rounds.once = 6;
  for (int text = 0; text < 3; ++text) {
    rounds.start();
    const double before = rounds.tokens + rounds.lost, tokens = rounds.tokens;
    std::int32_t most = 0;
    for (const double end = rounds.tokens + 64; rounds.tokens < end;) most = std::max(most, rounds.round(8));
    CAPTURE(text);
    if (text == 0) continue;
    CHECK(most == 9);
    CHECK(rounds.tokens - tokens >
          2 * (rounds.tokens + rounds.lost - before));  // twice as fast as plain decoding
  }
}

TEST_CASE("a phase in which all passes take three times as long changes no decision") {
  for (const bool pays : {true, false}) {
    Rounds rounds;
    for (std::size_t n = 1; n < 9; ++n) rounds.target[n] = 1 + (pays ? 0.05 : 1.0) * static_cast<double>(n);
    for (int phase = 0; phase < 12; ++phase) {
      if (phase % 4 == 0) rounds.start();
      rounds.pace = phase % 2 ? 3 : 1;
      rounds.drafted = 0;
      for (int i = 0; i < 60; ++i) rounds.round(2);
      if (phase < 2) continue;
      CAPTURE(phase);
      if (pays)
        CHECK(rounds.drafted > 45);
      else
        CHECK(rounds.drafted < 12);
    }
  }
}

TEST_CASE(
    "the draft's catch-up after a pause, and with a text's first call, is a cost that the balance must "
    "cover") {
  const CostCurve target({1, 1.1}), draft({0.1, 0.2, 0.3, 0.4});
  BatchBudget budget(target, draft);
  DraftState text;
  const auto plan = [&](double context) {
    text.context = context;
    return budget.begin(2, 9, {.catch_up = budget.catch_up(text)});
  };
  plan(50);
  budget.learn({.nodes = 2, .timing = {.target = {1, 2, 7}, .draft = {1, 1, 7}}, .drafted = text});
  text.add_round(1, 1);
  for (int i = 0; i < 30; ++i) {
    plan(51 + i);
    budget.learn({.timing = {.target = {1, 1, 7}, .draft = {}}, .drafted = text});
    text.add_round(1, 0);
  }
  CHECK(budget.balance() == doctest::Approx(Balance::kAtFirst - 0.2));
  CHECK_FALSE(plan(80).call_pays({}));  // 3.1 calls' time for 30 tokens
  text = {};
  CHECK(plan(50).call_pays({}));
}

TEST_CASE("another text keeps what was learned; forget() keeps only the costs") {
  Rounds rounds;
  rounds.start();
  for (int i = 0; i < 40; ++i) rounds.round(0);
  const double balance = rounds.budget.balance();
  CHECK(balance < 1.5);
  rounds.start();
  CHECK(rounds.budget.balance() == balance);
  rounds.budget.forget();
  CHECK(rounds.budget.balance() == Balance::kAtFirst);
  CHECK(rounds.budget.estimator().groups() == 0);
  CHECK(rounds.budget.target_costs().knows(1));
}
