// SPDX-License-Identifier: MIT
// CurveCostModel: which draft tokens pay.
#include <specula/cost/curve_cost_model.hpp>

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "random.hpp"

using namespace specula;

namespace {

CostCurve linear(double first, double more) {
  std::vector<double> seconds;
  for (int n = 0; n < 32; ++n) seconds.push_back(first + more * n);
  return CostCurve(seconds);
}

}  // namespace

TEST_CASE("a draft token pays if its probability is at least its cost") {
  AcceptanceEstimator record;
  for (int i = 0; i < 1000; ++i) record.saw_draft_tokens(false, false);  // the last draft token: no lookahead
  const CostCurve target = linear(1, 0.25), draft = linear(0.1, 0);
  CurveCostModel cost_model(record, target, draft,
                            {.rate = 2, .limit = 32});  // two tokens per second: a node costs half a token
  CHECK(cost_model.verify_cost(3) == doctest::Approx(3.0));
  CHECK(cost_model.draft_cost(1) == doctest::Approx(0.2));
  CHECK(cost_model.node_pays(1, 0.51, 4));
  CHECK(cost_model.node_pays(0.51, 1, 4));
  CHECK_FALSE(cost_model.node_pays(1, 0.49, 4));
  CHECK_FALSE(cost_model.node_pays(1, 0.9, 32));  // there is no room for it
  CurveCostModel drawn(record, target, draft, {.rate = 2, .limit = 32, .chosen = false});
  CHECK_FALSE(drawn.call_pays({.nodes = 4}));
}

TEST_CASE("lookahead over a step of the cost curve, where several draft tokens cost no more than one") {
  AcceptanceEstimator record;
  for (int i = 0; i < 1000; ++i) record.saw_draft_tokens(true, true);
  const CostCurve stairs({1, 1, 1, 1, 2.5, 2.5, 2.5, 2.5}), draft({0.0});
  const auto pays = [&](double confidence, std::int32_t limit) {
    return CurveCostModel(record, stairs, draft, {.rate = 1, .limit = limit}).node_pays(1, confidence, 4);
  };
  CHECK(pays(0.9, 8));        // 4 * .9 for 1.5
  CHECK_FALSE(pays(0.9, 5));  // .9 for 1.5
  CHECK_FALSE(pays(0.2, 8));
}

TEST_CASE("drafting more than is kept: a draft token that is left out costs only the draft's call") {
  AcceptanceEstimator record;
  for (int i = 0; i < 1000; ++i) record.saw_draft_tokens(false, false);
  for (int i = 0; i < 100; ++i)
    record.saw_drafted(i % 10 == 0 ? 0.997 : 0.01);  // seldom confident, but then very
  const CostCurve target = linear(1, 0.5), cheap({0.02}), dear({0.2});
  const auto pays = [&](const CostCurve& draft, double rate, bool chosen) {
    return CurveCostModel(record, target, draft, {.rate = rate, .limit = 8, .chosen = chosen}).call_pays({});
  };
  CHECK(pays(cheap, 1, true));  // .1 * (1 - .5) > .02
  CHECK_FALSE(pays(dear, 1, true));
  CHECK_FALSE(pays(cheap, 1, false));
  CHECK(pays(dear, 0, true));  // no rate, no costs
}

TEST_CASE("a call is allowed while the round cannot lose more than it may") {
  AcceptanceEstimator record;
  for (int i = 0; i < 1000; ++i) record.saw_draft_tokens(true, true);
  const CostCurve target = linear(1, 0.25), draft({0.5});
  const auto calls = [&](double most_lost, double catch_up) {
    CurveCostModel cost_model(record, target, draft,
                              {.rate = 0, .most_lost = most_lost, .catch_up = catch_up});
    std::int32_t nodes = 1;
    while (nodes < 20 && cost_model.call_pays({.nodes = nodes})) ++nodes;
    return nodes - 1;
  };
  CHECK(calls(0.74, 0) == 0);
  CHECK(calls(0.76, 0) == 1);  // a call, and one more node
  CHECK(calls(1.51, 0) == 2);
  CHECK(calls(1.51, 0.1) == 1);
}

TEST_CASE("the best number of draft tokens, against exhaustive search") {
  specula_test::Random random(3);
  AcceptanceEstimator record;
  for (int round = 0; round < 500; ++round) {
    std::vector<double> seconds{1.0};
    for (int n = 1; n < 20; ++n)
      seconds.push_back(seconds.back() + (random.bernoulli(0.4) ? 0.0 : random.uniform()));
    const CostCurve target(seconds), draft({0.1});
    const CurveCostModel cost_model(record, target, draft, {.rate = 0.7});
    std::vector<double> probabilities;
    double probability = 1;
    for (int i = random.below(12); i > 0; --i) probabilities.push_back(probability *= random.uniform());
    const std::int32_t nodes = 1 + random.below(6), count = cost_model.best_count(probabilities, nodes);
    const auto value = [&](std::int32_t n) {
      double v = -(cost_model.verify_cost(nodes + n) - cost_model.verify_cost(nodes));
      for (std::int32_t i = 0; i < n; ++i) v += probabilities[static_cast<std::size_t>(i)];
      return v;
    };
    for (std::int32_t n = 0; n <= static_cast<std::int32_t>(probabilities.size()); ++n)
      CHECK(value(count) >= value(n) - 1e-12);
  }
}

TEST_CASE("bids of several texts: as many are granted as gain most in one pass, if together they pay") {
  AcceptanceEstimator record;
  for (int i = 0; i < 1000; ++i)
    record.saw_draft_tokens(i % 2 == 0, i % 2 == 0);  // half of the first draft tokens
  const CostCurve target(std::vector<double>(40, 1.0)), draft({0.3, 0.31, 0.32, 0.33});
  const auto granted = [&](double rate, std::vector<double> reaches, double most_lost = 1e300) {
    CurveCostModel cost_model(
        record, target, draft,
        {.rate = rate, .limit = 40, .most_lost = most_lost, .texts = 4, .shared = true});
    std::vector<DraftBid> bids;
    for (const double reach : reaches) bids.push_back({.call = {.reach = reach}, .chosen = false});
    return cost_model.grants(bids, 4);
  };
  // each gains half a token; a call costs 1.2 tokens, and 0.04 more for each further node
  CHECK(granted(4, {1}) == 0);
  CHECK(granted(4, {1, 1}) == 0);
  CHECK(granted(4, {1, 1, 1}) == 3);
  CHECK(granted(4, {1, 1, 1, 1}) == 4);
  CHECK(granted(4, {1, 1, 1, 0.01}) == 3);      // the last one gains less than its place in the pass costs
  CHECK(granted(4, {1, 1, 1, 1}, 0.325) == 3);  // a pass over four could lose more than it may
  CHECK(granted(4, {}) == 0);
}
