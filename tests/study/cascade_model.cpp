// SPDX-License-Identifier: MIT
// labels: optimised
// Forecasts of cascades, against the closed forms, enumeration and sampling.
#include <specula/study/cascade_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "random.hpp"

using namespace specula;

namespace {

/// The simulated process; bernoulli(p) decides an event of probability p.
template <class Bernoulli>
class Process {
 public:
  Process(const CascadeRates& rates, Bernoulli& bernoulli)
      : rates_(rates), bernoulli_(bernoulli), calls(rates.draft_costs.size()) {}

  void cascade(const CascadeLimits& limits) { fill(limits, 0), run_rule(); }
  void horizontal(const std::vector<std::int32_t>& counts) {
    for (std::size_t d = 0; d < counts.size(); ++d) draft_token(d, counts[d]);
    run_rule();
  }
  void vertical(std::int32_t reviews, std::int32_t length) {
    for (std::int32_t i = 0; i < reviews; ++i) {
      const std::size_t base = text_.size();
      draft_token(calls.size() - 1, length);
      for (std::size_t d = calls.size() - 1; d-- > 0;) review(d, base);
    }
    run_rule();
  }

 private:
  const CascadeRates& rates_;
  Bernoulli& bernoulli_;
  std::vector<std::size_t> text_;  // the drafter of each draft token

 public:
  std::vector<double> calls;
  double cost = 0;
  std::int32_t tokens = 0, proposed = 0;
  std::int32_t run = 0;  // consecutive right draft tokens before the round, then after it

 private:
  void fill(const CascadeLimits& limits, std::size_t row) {
    const std::size_t start = text_.size(), n = limits.size();
    std::int32_t limit = 0;
    for (std::size_t i = row; i < n; ++i) {
      limit += limits[row][i];
      while (static_cast<std::int32_t>(text_.size() - start) < limit) {
        if (i == n - 1) {
          draft_token(i, limits[i][i]);
        } else {
          const std::size_t base = text_.size();
          fill(limits, i + 1);
          review(i, base);
        }
      }
    }
  }
  void draft_token(std::size_t d, std::int32_t count) {
    text_.insert(text_.end(), static_cast<std::size_t>(count), d);
    calls[d] += count;
    cost += count * rates_.draft_costs[d](1);
  }
  std::int32_t accepted(std::size_t reviewer, std::size_t base) {
    std::size_t at = base;
    const std::int32_t before = reviewer == 0 ? run : 0;
    while (at < text_.size() &&
           bernoulli_(rates_.acceptance[reviewer][text_[at]](before + static_cast<std::int32_t>(at - base))))
      ++at;
    return static_cast<std::int32_t>(at - base);
  }
  void review(std::size_t d, std::size_t base) {
    cost += rates_.draft_costs[d](static_cast<std::int32_t>(text_.size() - base) + 1);
    calls[d] += 1;
    const std::int32_t kept = accepted(d + 1, base);
    text_.resize(base);
    text_.insert(text_.end(), static_cast<std::size_t>(kept) + 1, d);
  }
  void run_rule() {
    proposed = static_cast<std::int32_t>(text_.size());
    cost += rates_.target_cost(proposed + 1);
    tokens = accepted(0, 0) + 1;
    if (!rates_.runs) return;
    const bool goes_on =
        tokens > proposed && bernoulli_(rates_.acceptance[0][text_.empty() ? 0 : text_[0]](run + proposed));
    run = goes_on ? run + tokens : 0;
  }
};

/// Uniform draws that enumerate all outcomes.
class EveryOutcome {
 public:
  bool operator()(double p) {
    if (p <= 0 || p >= 1) return p >= 1;
    if (at_ == script_.size()) script_.push_back(true);
    const bool yes = script_[at_++];
    weight_ *= yes ? p : 1 - p;
    return yes;
  }
  double weight() const { return weight_; }
  bool next() {
    at_ = 0, weight_ = 1;
    while (!script_.empty() && !script_.back()) script_.pop_back();
    if (script_.empty()) return false;
    script_.back() = false;
    return true;
  }

 private:
  std::vector<bool> script_;
  std::size_t at_ = 0;
  double weight_ = 1;
};

struct RandomBernoulli {
  specula_test::Random random;
  bool operator()(double p) { return random.uniform() < p; }
};

/// Of tokens, proposed, cost and each drafter's calls.
struct Sums {
  std::vector<double> mean, square;
  double weight = 0;
  std::int32_t longest = 0;

  template <class Bernoulli>
  void add(const Process<Bernoulli>& process, double w) {
    std::vector<double> values = {static_cast<double>(process.tokens), static_cast<double>(process.proposed),
                                  process.cost};
    values.insert(values.end(), process.calls.begin(), process.calls.end());
    mean.resize(values.size()), square.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      mean[i] += w * values[i], square[i] += w * values[i] * values[i];
    weight += w;
    longest = std::max(longest, process.proposed);
  }
};
std::vector<double> values_of(const CascadeForecast& forecast) {
  std::vector<double> out = {forecast.tokens, forecast.proposed, forecast.cost};
  out.insert(out.end(), forecast.calls.begin(), forecast.calls.end());
  return out;
}

/// run(process) against the forecast: every outcome of every uniform draw.
template <class Run>
void check_exactly(const CascadeRates& rates, const CascadeForecast& forecast, Run run) {
  EveryOutcome bernoulli;
  Sums sums;
  do {
    Process<EveryOutcome> process(rates, bernoulli);
    run(process);
    sums.add(process, bernoulli.weight());
  } while (bernoulli.next());
  REQUIRE(sums.weight == doctest::Approx(1).epsilon(1e-12));
  const auto values = values_of(forecast);
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("value ", i);
    CHECK(values[i] == doctest::Approx(sums.mean[i]).epsilon(1e-12));
  }
  CHECK(forecast.max_nodes == 1 + sums.longest);
}

/// The same by sampling: within four standard errors.
template <class Run>
void check_by_sampling(const CascadeRates& rates, const CascadeForecast& forecast, Run run, int rounds,
                       std::uint64_t seed) {
  RandomBernoulli bernoulli{specula_test::Random(seed)};
  Sums sums;
  for (int i = 0; i < rounds; ++i) {
    Process<RandomBernoulli> process(rates, bernoulli);
    run(process);
    sums.add(process, 1);
  }
  const auto values = values_of(forecast);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double mean = sums.mean[i] / rounds;
    const double error = std::sqrt(std::max(0.0, sums.square[i] / rounds - mean * mean) / rounds);
    INFO("value ", i, ": ", values[i], " forecast, ", mean, " seen, standard error ", error);
    CHECK(std::abs(values[i] - mean) <= 4 * error + 1e-9);
  }
  CHECK(forecast.max_nodes >= 1 + sums.longest);
}

std::vector<double> some_rates(specula_test::Random& random, std::int32_t most) {
  std::vector<double> out;
  for (std::int32_t i = 1 + random.below(most); i > 0; --i) out.push_back(random.between(0.05, 0.95));
  return out;
}
/// Rates by depth and costs by nodes, all different.
CascadeRates some_cascade(specula_test::Random& random, std::size_t n) {
  CascadeRates out;
  for (std::size_t r = 0; r < n; ++r) {
    out.acceptance.emplace_back();
    for (std::size_t d = 0; d < n; ++d) out.acceptance[r].emplace_back(some_rates(random, 4));
    std::vector<double> cost = {random.between(0, 0.3)};
    while (random.bernoulli(0.6)) cost.push_back(cost.back() + random.between(0, 0.05));
    out.draft_costs.emplace_back(cost);
  }
  out.target_cost = CostCurve({1.0, 1.1, 1.25});
  return out;
}

CascadeRates base_and_gram() {
  return {.acceptance = {{0.8, 0.3}, {0, 0.5}}, .draft_costs = {CostCurve({0.04}), CostCurve({0.0})}};
}

}  // namespace

TEST_CASE("the forecast of a chain is the closed form") {
  for (const double alpha : {0.0, 0.6, 1.0})
    for (const std::int32_t k : {0, 1, 5, 40}) {
      const CascadeRates rates{.acceptance = {{alpha}}, .draft_costs = {CostCurve({0.07})}};
      const auto forecast = forecast_chain(rates, k);
      CHECK(forecast.tokens == doctest::Approx(expected_tokens(alpha, k)).epsilon(1e-12));
      CHECK(forecast.speedup == doctest::Approx(speedup(alpha, k, 0.07)).epsilon(1e-12));
      CHECK(forecast.swi == doctest::Approx(forecast.speedup).epsilon(1e-12));
      CHECK(forecast.proposed == doctest::Approx(k));
      CHECK(forecast.calls == std::vector<double>{static_cast<double>(k)});
      CHECK(forecast.max_nodes == k + 1);
      // A cascade of one drafter is that chain.
      const auto same = forecast_cascade(rates, {{k}});
      CHECK(same.tokens == forecast.tokens);
      CHECK(same.cost == forecast.cost);
      CHECK(same.max_nodes == forecast.max_nodes);
    }
}

TEST_CASE("forecasts of horizontal and vertical cascades are the theorems' values") {
  const CascadeRates rates{.acceptance = {{0.73, 0.65}, {0, 0.55}},
                           .draft_costs = {CostCurve({0.022}), CostCurve({0.0069})}};
  const std::vector<double> alphas = {0.73, 0.73, 0.73, 0.65, 0.65};
  const std::vector<double> costs = {0.022, 0.022, 0.022, 0.0069, 0.0069};
  const auto horizontal = forecast_horizontal(rates, std::array<std::int32_t, 2>{3, 2});
  CHECK(horizontal.speedup == doctest::Approx(horizontal_ewif(alphas, costs)).epsilon(1e-12));
  CHECK(horizontal.swi == doctest::Approx(horizontal.speedup).epsilon(1e-12));
  CHECK(horizontal.calls == std::vector<double>{3, 2});
  CHECK(forecast_horizontal(rates, std::array<std::int32_t, 1>{4}).calls == std::vector<double>{4, 0});

  for (const std::int32_t n : {0, 1, 5})
    for (const std::int32_t k : {0, 1, 10}) {
      const auto vertical = forecast_vertical(rates, n, k);
      CHECK(vertical.speedup ==
            doctest::Approx(vertical_ewif(0.73, 0.55, k, n, 0.022, 0.0069)).epsilon(1e-12));
      CHECK(vertical.swi == doctest::Approx(vertical.speedup).epsilon(1e-12));
      CHECK(vertical.max_nodes == 1 + n * (k + 1));
    }
  const auto unit = forecast_vertical(base_and_gram(), 5, 10);
  CHECK(unit.speedup == doctest::Approx(3.727663).epsilon(1e-7));
}

TEST_CASE("a vertical cascade limited by ten tokens") {
  const auto forecast = forecast_cascade(base_and_gram(), {{10, 0}, {0, 10}});
  // A review adds one token, and each further one with probability 1/2: the lengths are a renewal process.
  CHECK(forecast.calls[0] == doctest::Approx(1 + 9 * 0.5).epsilon(1e-12));
  CHECK(forecast.calls[1] == doctest::Approx(10 * forecast.calls[0]));
  const double overshoot = 0.5 / (1 - 0.8 * 0.5);  // mean of .8^(tokens beyond ten)
  const double tokens = (1 - std::pow(0.8, 11) * overshoot) / 0.2;
  CHECK(forecast.tokens == doctest::Approx(tokens).epsilon(1e-4));
  CHECK(forecast.speedup == doctest::Approx(3.804863).epsilon(1e-7));
  CHECK(forecast.max_nodes == 1 + 9 + 11);
}

TEST_CASE("enumeration of all outcomes gives the forecast") {
  specula_test::Random random(11);
  for (int trial = 0; trial < 4; ++trial) {
    const CascadeRates two = some_cascade(random, 2), three = some_cascade(random, 3);
    INFO("trial ", trial);
    for (const CascadeLimits& limits : {CascadeLimits{{2, 0}, {0, 2}},
                                        {{2, 2}, {0, 3}},
                                        {{1, 3}, {0, 2}},
                                        {{0, 4}, {0, 3}},
                                        {{3, 0}, {0, 0}}}) {
      INFO(limits[0][0], " ", limits[0][1], " | ", limits[1][1]);
      check_exactly(two, forecast_cascade(two, limits), [&](auto& process) { process.cascade(limits); });
    }
    for (const CascadeLimits& limits : {CascadeLimits{{1, 1, 1}, {0, 1, 1}, {0, 0, 1}},
                                        {{2, 0, 2}, {0, 1, 0}, {0, 0, 2}},
                                        {{0, 2, 1}, {0, 1, 2}, {0, 0, 2}},
                                        {{1, 0, 0}, {0, 0, 3}, {0, 0, 3}},
                                        {{0, 0, 3}, {0, 0, 0}, {0, 0, 2}}})
      check_exactly(three, forecast_cascade(three, limits), [&](auto& process) { process.cascade(limits); });
    for (const std::int32_t reviews : {0, 1, 3})
      check_exactly(two, forecast_vertical(two, reviews, 3),
                    [&](auto& process) { process.vertical(reviews, 3); });
    check_exactly(three, forecast_vertical(three, 2, 3), [](auto& process) { process.vertical(2, 3); });
    check_exactly(three, forecast_vertical(three, 3, 0), [](auto& process) { process.vertical(3, 0); });
    for (const std::vector<std::int32_t>& counts : {std::vector<std::int32_t>{2, 0, 3}, {0, 4, 0}, {1, 2, 2}})
      check_exactly(three, forecast_horizontal(three, counts),
                    [&](auto& process) { process.horizontal(counts); });
  }
}

TEST_CASE("sampling agrees for limits of the paper's size") {
  specula_test::Random random(12);
  for (int trial = 0; trial < 3; ++trial) {
    INFO("trial ", trial);
    const CascadeRates three = some_cascade(random, 3), four = some_cascade(random, 4);
    const CascadeLimits limits = {{8, 5, 10}, {0, 1, 10}, {0, 0, 10}};
    check_by_sampling(
        three, forecast_cascade(three, limits), [&](auto& process) { process.cascade(limits); }, 40000,
        100 + static_cast<std::uint64_t>(trial));
    const CascadeLimits deep = {{6, 3, 2, 7}, {0, 3, 2, 5}, {0, 0, 2, 4}, {0, 0, 0, 4}};
    check_by_sampling(
        four, forecast_cascade(four, deep), [&](auto& process) { process.cascade(deep); }, 20000,
        200 + static_cast<std::uint64_t>(trial));
  }
}

TEST_CASE("runs: consecutive rounds, where depth continues from round to round") {
  // One draft token per round. After a rejection it is accepted with probability a; after an accepted one,
  // and a next token that would have been right, too, with probability b, as is every later one.
  const double a = 0.5, b = 0.9;
  CascadeRates one{
      .acceptance = {{AcceptanceCurve({a, b})}}, .draft_costs = {CostCurve({0.1})}, .runs = true};
  const double on = a * b / (1 - b * b);  // rounds that continue, per round that does not
  CHECK(forecast_chain(one, 1).tokens == doctest::Approx(((1 + a) + on * (1 + b)) / (1 + on)).epsilon(1e-12));
  CHECK(forecast_chain(one, 1).calls[0] == 1);
  CHECK(forecast_chain(one, 0).tokens == 1);
  // Rounds do not differ if depth does not matter, or if proposals are never accepted completely.
  one.acceptance = {{AcceptanceCurve({0.7, 0.7, 0.7})}};
  CHECK(forecast_chain(one, 2).tokens == doctest::Approx(expected_tokens(0.7, 2)).epsilon(1e-12));
  one.acceptance = {{AcceptanceCurve({0.0, 0.5})}};
  CHECK(forecast_chain(one, 2).tokens == 1);
  // If everything is accepted after a start, depth grows forever.
  one.acceptance = {{AcceptanceCurve({0.3, 1.0})}};
  CHECK(forecast_chain(one, 3).tokens == 4);
  // The simulated process over many rounds.
  specula_test::Random random(14);
  for (int trial = 0; trial < 3; ++trial) {
    INFO("trial ", trial);
    CascadeRates rates = some_cascade(random, 2);
    for (auto& curve : rates.acceptance[0]) curve = AcceptanceCurve({0.5, 0.65, 0.7, 0.8, 0.85, 0.9});
    rates.acceptance[0][1] = AcceptanceCurve({0.25, 0.6, 0.85, 0.95});
    const auto agrees = [&](auto forecast, auto propose) {
      rates.runs = true;
      const CascadeForecast expected = forecast();
      RandomBernoulli bernoulli{specula_test::Random(300 + static_cast<std::uint64_t>(trial))};
      constexpr int kRounds = 200000;
      double sum = 0, square = 0;
      std::int32_t run = 0;
      for (int i = 0; i < kRounds; ++i) {
        Process<RandomBernoulli> process(rates, bernoulli);
        process.run = run;
        propose(process);
        run = process.run;
        sum += process.tokens, square += process.tokens * process.tokens;
      }
      const double mean = sum / kRounds, error = std::sqrt((square / kRounds - mean * mean) / kRounds);
      INFO(expected.tokens, " forecast, ", mean, " seen, standard error of independent rounds ", error);
      CHECK(std::abs(expected.tokens - mean) < 6 * error);
      rates.runs = false;
      const CascadeForecast apart = forecast();
      CHECK(std::abs(apart.tokens - mean) > 20 * error);  // it matters
      CHECK(apart.proposed == expected.proposed);
      CHECK(apart.cost == expected.cost);
    };
    for (const std::int32_t length : {1, 2, 3}) {
      const std::vector<std::int32_t> counts{length, 0};
      agrees([&] { return forecast_horizontal(rates, counts); },
             [&](auto& process) { process.horizontal(counts); });
    }
    const std::vector<std::int32_t> second{0, 2};  // the second drafter begins
    agrees([&] { return forecast_horizontal(rates, second); },
           [&](auto& process) { process.horizontal(second); });
    const CascadeLimits copied{{0, 3}, {0, 3}};
    agrees([&] { return forecast_cascade(rates, copied); }, [&](auto& process) { process.cascade(copied); });
    const CascadeLimits limits{{2, 0}, {0, 2}};
    agrees([&] { return forecast_cascade(rates, limits); }, [&](auto& process) { process.cascade(limits); });
    agrees([&] { return forecast_vertical(rates, 1, 2); }, [&](auto& process) { process.vertical(1, 2); });
    // Reviews inside the cascade do not depend on earlier rounds, nor on an earlier forecast.
    rates.runs = true;
    detail::CascadeForecaster again(rates);
    const auto first = values_of(again.cascade(limits));
    CHECK(values_of(again.cascade(limits)) == first);
  }
}

TEST_CASE("room: a row shorter than its maximum may exceed a later limit by more") {
  // Base's turn ends with 8 to 28 draft tokens; from 22, one below the last limit, ten more make 32.
  const CascadeRates sure{.acceptance = {{0.9, 0.9, 0.9}, {0, 0.95, 0.95}, {0, 0, 0.95}},
                          .draft_costs = {CostCurve({0.1}), CostCurve({0.05}), CostCurve({0.0})}};
  const CascadeLimits limits = {{8, 5, 10}, {0, 1, 10}, {0, 0, 10}};
  const auto forecast = forecast_cascade(sure, limits);
  CHECK(forecast.max_nodes == 33);
  RandomBernoulli bernoulli{specula_test::Random(5)};
  std::int32_t longest = 0;
  for (int i = 0; i < 20000; ++i) {
    Process<RandomBernoulli> process(sure, bernoulli);
    process.cascade(limits);
    longest = std::max(longest, process.proposed);
  }
  CHECK(longest == 32);
}

TEST_CASE("costs: in calls of the target over one node, whatever their unit; reviews by their nodes") {
  CascadeRates rates{.acceptance = {{0.5, 0.5}, {0, 1.0}},
                     .draft_costs = {CostCurve({2.0, 3.0, 4.0}), CostCurve({1.0})},
                     .target_cost = CostCurve({10.0, 10.0, 10.0, 15.0, 20.0})};
  // One review of two draft tokens, all accepted: three nodes for the base, four for the target.
  const auto forecast = forecast_vertical(rates, 1, 2);
  CHECK(forecast.cost == doctest::Approx((2 * 1.0 + 4.0 + 15.0) / 10));
  CHECK(forecast.tokens == doctest::Approx(1.875));
  CHECK(forecast.speedup == doctest::Approx(1.875 / 2.1));
  CHECK(forecast.swi == doctest::Approx(1.875 / (1 + 0.2 + 2 * 0.1)));
}

TEST_CASE("errors explain invalid cascades") {
  const CascadeRates good = base_and_gram();
  CHECK_THROWS_WITH_AS(forecast_cascade(good, {{1}}), "forecast_cascade: limits must be 2 rows of 2",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_cascade(good, {{1, 2}, {3, 4}}),
                       "forecast_cascade: a limit below the diagonal is 3, must be 0", std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_cascade(good, {{-1, 2}, {0, 4}}),
                       "forecast_cascade: a limit is -1, must be in [0, 1024]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_cascade(good, {{1, 2}, {0, 0}}),
                       "forecast_cascade: the last limit is 0, must be >= 1 where its column is used",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_cascade(good, {{1, 2}, {0, 1025}}),
                       doctest::Contains("forecast_cascade: a limit is 1025"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_horizontal(good, std::array<std::int32_t, 3>{1, 1, 1}),
                       doctest::Contains("forecast_horizontal: the number of counts is 3"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_horizontal(good, std::array<std::int32_t, 2>{1, -1}),
                       doctest::Contains("forecast_horizontal: a limit is -1"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_vertical(good, -1, 1), doctest::Contains("forecast_vertical: a limit is -1"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_chain(good, -1), doctest::Contains("a limit is -1"), std::invalid_argument);

  CascadeRates bad = good;
  bad.draft_costs.pop_back();
  CHECK_THROWS_WITH_AS(forecast_chain(bad, 1),
                       "CascadeRates: acceptance must be 1 rows of 1 for as many draft_costs",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      forecast_vertical({.acceptance = {{0.5}}, .draft_costs = {CostCurve({0.1})}}, 1, 1),
      doctest::Contains("forecast_vertical: the number of drafters is 1, must be at least 2"),
      std::invalid_argument);
  bad = good;
  bad.target_cost = CostCurve({0.0});
  CHECK_THROWS_WITH_AS(forecast_chain(bad, 1), "CascadeRates: target_cost(1) is 0.000000, must be > 0",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(forecast_chain({}, 1), "CascadeRates: no drafters", std::invalid_argument);
}
