// SPDX-License-Identifier: MIT
// labels: optimised
// The tuner: best lengths, counts and limits by forecasts.
#include <specula/study/tuner.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "published_tables.hpp"
#include "random.hpp"

using namespace specula;

namespace {

/// Rates that fall with the drafter's size and with depth, costs that fall with its size.
CascadeRates some_cascade(specula_test::Random& random, std::size_t n) {
  CascadeRates out;
  for (std::size_t r = 0; r < n; ++r) {
    out.acceptance.emplace_back();
    for (std::size_t d = 0; d < n; ++d) {
      const double first = random.between(0.5, 0.95) - 0.15 * static_cast<double>(d);
      out.acceptance[r].emplace_back(std::vector<double>{first, first * random.between(0.9, 1.0)});
    }
    out.draft_costs.emplace_back(
        std::vector<double>{r + 1 == n ? 0.0 : random.between(0.02, 0.2) / static_cast<double>(1 + 3 * r)});
  }
  return out;
}

}  // namespace

TEST_CASE("the best chain length is that of the closed form") {
  for (const double alpha : {0.0, 0.3, 0.65, 0.8, 0.95})
    for (const double c : {0.0069, 0.05, 0.3, 0.9}) {
      std::int32_t best = 0;
      for (std::int32_t k = 1; k <= 60; ++k)
        if (speedup(alpha, k, c) > speedup(alpha, best, c)) best = k;
      const auto chain = best_chain_length(alpha, CostCurve({c}), 60);
      INFO(alpha, " ", c);
      CHECK(chain.length == best);
      CHECK(chain.forecast.speedup == doctest::Approx(speedup(alpha, best, c)).epsilon(1e-12));
    }
  CHECK(best_chain_length(0.3, CostCurve({0.9}), 10).length == 0);  // no draft token pays
  CHECK(best_chain_length(1.0, CostCurve({0.1}), 10).length == 10);
  CHECK(best_chain_length(0.0, CostCurve({0.0}), 10).length == 0);  // the shortest of equals
  // If only four nodes are free for the target, three draft tokens are best.
  CHECK(best_chain_length(0.9, CostCurve({0.01}), 10, CostCurve({1, 1, 1, 1, 3, 3})).length == 3);
  CHECK(best_chain_length(0.9, CostCurve({0.01}), 10, CostCurve({1, 1, 1, 1, 3, 3}), TunerObjective::swi)
            .length == 10);
  // Rates that fall after two draft tokens.
  CHECK(
      best_chain_length(AcceptanceCurve(std::vector<double>{0.9, 0.9, 0.05}), CostCurve({0.1}), 10).length ==
      2);
}

TEST_CASE("Cascade Speculative Drafting's table 1: lengths, one of them better than printed") {
  using specula_test::kCascadeDatasets, specula_test::kCascadeTable;
  const CostCurve base({specula_test::kBaseCost}), little({specula_test::kSmallCost});
  for (const auto& row : kCascadeTable) {
    const auto& data = kCascadeDatasets[static_cast<std::size_t>(row.dataset)];
    INFO(std::string(data.name), " ", row.base_count, " ", row.small_count);
    if (row.base_count == 0 || row.small_count == 0) {
      const auto chain = row.base_count == 0 ? best_chain_length(data.little, little, 30)
                                             : best_chain_length(data.base, base, 30);
      CHECK(chain.length == row.best_base + row.best_small);
      CHECK(std::round(100 * chain.forecast.speedup) == std::round(100 * row.printed));
    } else {
      const CascadeRates rates{.acceptance = {{data.base, data.little}, {0, 0}},
                               .draft_costs = {base, little}};
      TunerOptions options;
      options.max_length = {30};
      const auto best = best_horizontal(rates, options);
      CHECK(best.counts == std::vector<std::int32_t>{row.best_base, row.best_small});
      const auto printed = forecast_horizontal(rates, std::array{row.base_count, row.small_count});
      CHECK(std::round(100 * printed.speedup) == std::round(100 * row.printed));
      if (row.dataset == 0) {
        CHECK(printed.speedup == doctest::Approx(3.027).epsilon(1e-4));
        CHECK(best.forecast.speedup == doctest::Approx(3.044).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("vertical: no other numbers of reviews and lengths are better") {
  const CascadeRates rates{.acceptance = {{0.8, 0.3}, {0, 0.5}},
                           .draft_costs = {CostCurve({0.04}), CostCurve({0.002})}};
  TunerOptions options;
  options.max_length = {12, 9};
  const auto best = best_vertical(rates, options);
  double most = 0;
  for (std::int32_t n = 0; n <= 12; ++n)
    for (std::int32_t k = 0; k <= 9; ++k) most = std::max(most, vertical_ewif(0.8, 0.5, k, n, 0.04, 0.002));
  CHECK(best.forecast.speedup == doctest::Approx(most).epsilon(1e-12));
  CHECK(vertical_ewif(0.8, 0.5, best.length, best.reviews, 0.04, 0.002) == doctest::Approx(most));
  CHECK(best.length > 0);

  options.max_length = {1, 9};
  CHECK(best_vertical(rates, options).reviews == 1);
  options.max_nodes = 9;
  options.max_length = {12, 9};
  const auto narrow = best_vertical(rates, options);
  CHECK(narrow.forecast.max_nodes <= 9);
  CHECK(narrow.forecast.speedup < best.forecast.speedup);
}

TEST_CASE("cascade: no other limits are better, by exhaustive search") {
  specula_test::Random random(2);
  const CascadeRates rates = some_cascade(random, 2);
  TunerOptions options;
  options.max_length = {9};
  options.last_column = {};
  options.max_nodes = 16;
  const auto best = best_cascade(rates, options);
  double most = 0;
  for (std::int32_t a = 0; a <= 9; ++a)
    for (std::int32_t b = 0; b <= 9; ++b)
      for (std::int32_t c = b == 0 ? 0 : 1; c <= 9; ++c) {
        const auto forecast = forecast_cascade(rates, {{a, b}, {0, c}});
        if (forecast.max_nodes <= 16) most = std::max(most, forecast.speedup);
      }
  CHECK(best.forecast.speedup == doctest::Approx(most).epsilon(1e-12));
  CHECK(best.forecast.max_nodes <= 16);
  CHECK(forecast_cascade(rates, best.limits).speedup == best.forecast.speedup);

  // The paper's last column, and the gain from choosing it.
  options = {};
  const auto fixed = best_cascade(rates, options);
  CHECK(fixed.limits[0][1] == 10);
  CHECK(fixed.limits[1][1] == 10);
  options.last_column = {0, 2, 5, 10};
  const auto chosen = best_cascade(rates, options);
  CHECK(chosen.forecast.speedup >= fixed.forecast.speedup);
  for (const std::int32_t v : {chosen.limits[0][1], chosen.limits[1][1]})
    CHECK(std::count(options.last_column.begin(), options.last_column.end(), v) == 1);
}

TEST_CASE("a full cascade is at least as good as its parts") {
  specula_test::Random random(4);
  for (int trial = 0; trial < 3; ++trial) {
    const CascadeRates rates = some_cascade(random, 3);
    TunerOptions options;
    options.max_length = {10, 6, 10};
    const double full = best_cascade(rates, options).forecast.speedup;
    // {k, 0, 10 | 0, 0, 10 | 0, 0, 10}: base reviews the last drafter, and never the small model.
    double part = 0;
    for (std::int32_t k = 0; k <= 10; ++k)
      part = std::max(part, forecast_cascade(rates, {{k, 0, 10}, {0, 0, 10}, {0, 0, 10}}).speedup);
    CHECK(full >= part - 1e-9);
  }
}

TEST_CASE("hill climbing finds the optimum of exhaustive search, and is deterministic") {
  specula_test::Random random(6);
  for (int trial = 0; trial < 6; ++trial) {
    const CascadeRates rates = some_cascade(random, 3);
    TunerOptions all;
    all.max_length = {9};
    const auto best = best_cascade(rates, all);
    TunerOptions climb = all;
    climb.exhaustive = 0;
    const auto found = best_cascade(rates, climb), again = best_cascade(rates, climb);
    INFO("trial ", trial);
    CHECK(found.forecast.speedup <= best.forecast.speedup + 1e-9);
    CHECK(found.forecast.speedup >= best.forecast.speedup - 1e-9);
    CHECK(found.limits == again.limits);

    const auto counts = best_horizontal(rates, all), climbed = best_horizontal(rates, climb);
    CHECK(climbed.forecast.speedup >= counts.forecast.speedup - 1e-9);
  }
  // Four drafters: too many candidates for exhaustive search.
  const CascadeRates four = some_cascade(random, 4);
  TunerOptions options;
  options.max_length = {8};
  const auto deep = best_cascade(four, options);
  for (const CascadeLimits& limits :
       {CascadeLimits{{8, 4, 2, 10}, {0, 1, 1, 10}, {0, 0, 1, 10}, {0, 0, 0, 10}},
        {{2, 2, 2, 10}, {0, 2, 2, 10}, {0, 0, 2, 10}, {0, 0, 0, 10}},
        {{0, 0, 0, 10}, {0, 0, 0, 10}, {0, 0, 0, 10}, {0, 0, 0, 10}}})
    CHECK(deep.forecast.speedup >= forecast_cascade(four, limits).speedup);
}

TEST_CASE("hill climbing over costs with steps, which have many local optima") {
  specula_test::Random random(77);
  for (int trial = 0; trial < 20; ++trial) {
    CascadeRates rates = some_cascade(random, 3);
    std::vector<double> stairs = {1};
    for (int i = 0; i < 30; ++i) stairs.push_back(stairs.back() * (random.bernoulli(0.2) ? 1.15 : 1.0));
    rates.target_cost = CostCurve(stairs);
    TunerOptions all;
    all.max_length = {5};
    all.last_column = {0, 3, 6};
    TunerOptions climb = all;
    climb.exhaustive = 0;
    INFO("trial ", trial);
    CHECK(best_cascade(rates, climb).forecast.speedup >= best_cascade(rates, all).forecast.speedup - 1e-9);
  }
}

TEST_CASE("the objective: reviews of many nodes cost more only by the given curves") {
  CascadeRates rates{.acceptance = {{0.85, 0.4}, {0, 0.6}},
                     .draft_costs = {CostCurve({0.05}), CostCurve({0.0})},
                     .target_cost = CostCurve({1.0, 1.08})};
  TunerOptions options;
  const auto by_time = best_cascade(rates, options);
  options.objective = TunerObjective::swi;
  const auto by_calls = best_cascade(rates, options);
  CHECK(by_time.forecast.speedup > by_calls.forecast.speedup);
  CHECK(by_calls.forecast.swi > by_time.forecast.swi);
  CHECK(by_time.forecast.proposed < by_calls.forecast.proposed);
}

TEST_CASE("invalid options are errors that name them") {
  specula_test::Random random(8);
  const CascadeRates rates = some_cascade(random, 3);
  TunerOptions options;
  options.max_length = {3, 4};
  CHECK_THROWS_WITH_AS(best_cascade(rates, options), "TunerOptions: 2 max_length, must be 1 or 3",
                       std::invalid_argument);
  options.max_length = {-1};
  CHECK_THROWS_WITH_AS(best_horizontal(rates, options),
                       "TunerOptions: max_length is -1, must be in [0, 1024]", std::invalid_argument);
  options = {};
  options.last_column = {2000};
  CHECK_THROWS_WITH_AS(
      best_cascade(rates, options),
      doctest::Contains("TunerOptions: a value of last_column is 2000, must be in [0, 1024]"),
      std::invalid_argument);
  options = {};
  options.least_first = 5000;  // no first limit is that large
  CHECK_THROWS_WITH_AS(
      best_cascade(rates, options),
      doctest::Contains("TunerOptions: least_first is 5000, must be at most the largest first limit"),
      std::invalid_argument);
  options = {};
  options.max_nodes = 0;
  CHECK_THROWS_WITH_AS(best_horizontal(rates, options),
                       doctest::Contains("TunerOptions: max_nodes is 0, must be >= 1"),
                       std::invalid_argument);
  options.max_nodes = 8;  // ten draft tokens of the last drafter do not fit
  CHECK_THROWS_WITH_AS(best_cascade(rates, options),
                       "best_cascade: max_nodes is 8, must be enough for some candidate",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(best_vertical(some_cascade(random, 1), {}),
                       doctest::Contains("the number of drafters is 1, must be at least 2"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(best_chain_length(0.5, CostCurve({0.1}), -1), doctest::Contains("is -1, must be"),
                       std::invalid_argument);
}
