// SPDX-License-Identifier: MIT
// Closed forms of expected tokens, speedup, EWIF and SWI, against the papers' tables.
#include <specula/study/speedup.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "published_tables.hpp"
#include "random.hpp"

using namespace specula;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// 1 + r + ... + r^k, term by term.
double sum_of_powers(double r, std::int32_t k) {
  long double sum = 1, term = 1;
  for (std::int32_t i = 0; i < k; ++i) sum += term *= static_cast<long double>(r);
  return static_cast<double>(sum);
}

/// Probabilities of 1..k+1 new tokens in a round.
std::vector<double> tokens_distribution(double alpha, std::int32_t k) {
  std::vector<double> out(static_cast<std::size_t>(k) + 2, 0.0);
  double reach = 1;
  for (std::int32_t i = 1; i <= k; ++i)
    out[static_cast<std::size_t>(i)] = reach * (1 - alpha), reach *= alpha;
  out.back() = reach;
  return out;
}
std::vector<double> sum_distribution(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out(a.size() + b.size() - 1, 0.0);
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j) out[i + j] += a[i] * b[j];
  return out;
}

}  // namespace

TEST_CASE("expected tokens are the sum of powers, also for alpha 1") {
  for (const double alpha :
       {0.0, 1e-300, 1e-9, 0.1, 0.5, 0.8, 0.999, 1 - 1e-9, 1 - 1e-13, std::nextafter(1.0, 0.0), 1.0})
    for (const std::int32_t k : {0, 1, 2, 5, 40, 1000}) {
      INFO(alpha, " ", k);
      CHECK(expected_tokens(alpha, k) == doctest::Approx(sum_of_powers(alpha, k)).epsilon(1e-13));
    }
  CHECK(expected_tokens(0, 7) == 1);
  CHECK(expected_tokens(1, 7) == 8);
  CHECK(expected_tokens(0.5, 0) == 1);
}

TEST_CASE("speedup: the paper's example, and no draft tokens") {
  CHECK(speedup(0.8, 5, 0.04) == doctest::Approx(3.0744).epsilon(1e-5));
  CHECK(speedup(0.8, 0, 0.04) == 1);
  CHECK(speedup(0, 4, 0.25) == 0.5);
  CHECK(speedup(1, 4, 0) == 5);
}

TEST_CASE("GLIDE's table 1, all 44 cells") {
  double worst = 0;
  int cells = 0;
  for (const auto& row : specula_test::kGlideTable)
    for (std::size_t i = 0; i < row.printed.size(); ++i, ++cells) {
      const double computed = speedup(row.acceptance[i], specula_test::kGlideLength, row.cost);
      INFO(row.target, " ", row.draft, " ", i);
      CHECK(std::abs(computed - row.printed[i]) < specula_test::kGlideTolerance);
      worst = std::max(worst, std::abs(computed - row.printed[i]));
    }
  CHECK(cells == 44);
  CHECK(std::abs(worst - 0.0092) < 5e-5);  // 33B, GLIDE, Spider: 1.8792 for 1.87
  CHECK(std::abs(speedup(0.251, 5, 0.49) - 0.3869) <
        5e-5);  // printed as 0.38, which no rounding of rates and cost explains
}

TEST_CASE("the generating function has the distribution of the tokens as its coefficients") {
  for (const double alpha : {0.0, 0.3, 0.8, 1.0})
    for (const std::int32_t k : {0, 1, 4, 10})
      for (const double x : {0.0, 0.2, 0.9, 1.0, 1.25}) {
        const auto distribution = tokens_distribution(alpha, k);
        double value = 0, power = 1;
        for (const double p : distribution) value += p * power, power *= x;
        INFO(alpha, " ", k, " ", x);
        CHECK(tokens_generating_function(alpha, k, x) == doctest::Approx(value).epsilon(1e-13));
      }
  const double h = 1e-5;  // its slope at 1 is the mean
  CHECK((tokens_generating_function(0.8, 5, 1 + h) - tokens_generating_function(0.8, 5, 1 - h)) / (2 * h) ==
        doctest::Approx(expected_tokens(0.8, 5)).epsilon(1e-8));
}

TEST_CASE("vertical EWIF: the paper's example, and the sum over the distribution of lengths") {
  CHECK(vertical_ewif(0.8, 0.5, 10, 5, 0.04, 0) == doctest::Approx(3.727663).epsilon(1e-7));
  CHECK(vertical_ewif(0.8, 0, 10, 5, 0.04, 0) == doctest::Approx(speedup(0.8, 5, 0.04)));
  for (const double alpha : {0.0, 0.4, 0.8, 1 - 1e-12, 1.0})
    for (const double inner : {0.0, 0.5, 1.0})
      for (const std::int32_t k : {0, 1, 4})
        for (const std::int32_t n : {0, 1, 3}) {
          std::vector<double> distribution = {1};
          for (std::int32_t i = 0; i < n; ++i)
            distribution = sum_distribution(distribution, tokens_distribution(inner, k));
          double tokens = 0;
          for (std::size_t length = 0; length < distribution.size(); ++length)
            tokens += distribution[length] * sum_of_powers(alpha, static_cast<std::int32_t>(length));
          INFO(alpha, " ", inner, " ", k, " ", n);
          CHECK(vertical_ewif(alpha, inner, k, n, 0.1, 0.02) ==
                doctest::Approx(tokens / (1 + n * 0.1 + n * k * 0.02)).epsilon(1e-13));
        }
}

TEST_CASE("horizontal EWIF: a chain with one drafter; the derivative against finite differences") {
  const std::vector<double> same(6, 0.7), cost(6, 0.05);
  CHECK(horizontal_ewif(same, cost) == doctest::Approx(speedup(0.7, 6, 0.05)).epsilon(1e-14));
  CHECK(horizontal_ewif({}, {}) == 1);

  specula_test::Random random(3);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> alphas, costs;
    for (std::int32_t i = 0; i < 1 + trial % 7; ++i) {
      alphas.push_back(random.between(0.01, 0.99));
      costs.push_back(random.between(0, 0.3));
    }
    for (std::size_t at = 0; at < alphas.size(); ++at) {
      const double h = 1e-4;  // linear in each rate: no error but rounding
      auto up = alphas, down = alphas;
      up[at] += h, down[at] -= h;
      CHECK(horizontal_ewif_derivative(alphas, costs, static_cast<std::int32_t>(at)) ==
            doctest::Approx((horizontal_ewif(up, costs) - horizontal_ewif(down, costs)) / (2 * h))
                .epsilon(1e-9));
    }
  }
  // A rate of 0 removes the later terms, not its own derivative.
  const std::array<double, 3> cut = {0.5, 0.0, 0.5}, free = {0, 0, 0};
  CHECK(horizontal_ewif_derivative(cut, free, 1) == doctest::Approx(0.75));
  CHECK(horizontal_ewif_derivative(cut, free, 2) == 0);
}

TEST_CASE("Cascade Speculative Drafting's table 1") {
  for (const auto& row : specula_test::kCascadeTable) {
    const auto& data = specula_test::kCascadeDatasets[static_cast<std::size_t>(row.dataset)];
    std::vector<double> alphas(static_cast<std::size_t>(row.base_count), data.base);
    std::vector<double> costs(static_cast<std::size_t>(row.base_count), specula_test::kBaseCost);
    alphas.insert(alphas.end(), static_cast<std::size_t>(row.small_count), data.little);
    costs.insert(costs.end(), static_cast<std::size_t>(row.small_count), specula_test::kSmallCost);
    INFO(std::string(data.name), " ", row.base_count, " ", row.small_count);
    CHECK(std::round(100 * horizontal_ewif(alphas, costs)) == std::round(100 * row.printed));
  }
}

TEST_CASE("swi: tokens over weighted calls") {
  const std::array<double, 2> calls = {50, 200}, costs = {0.02, 0.001};
  CHECK(swi(36, 10, calls, costs) == doctest::Approx(36 / 11.2));
  CHECK(swi(36, 12, {}, {}) == 3);
}

TEST_CASE("invalid values are errors that name them") {
  CHECK_THROWS_WITH_AS(expected_tokens(1.5, 3), "expected_tokens: alpha is 1.500000, must be in [0, 1]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(expected_tokens(0.5, -1), "expected_tokens: k is -1, must be >= 0",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(expected_tokens(kNaN, 3), doctest::Contains("expected_tokens: alpha is nan"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(speedup(-0.1, 3, 0), doctest::Contains("alpha is -0.1"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(speedup(0.1, 3, -1), "speedup: c is -1.000000, must be finite and >= 0",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(speedup(0.1, 3, kInfinity), doctest::Contains("speedup: c is inf"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(tokens_generating_function(0.1, 3, -1),
                       doctest::Contains("tokens_generating_function: "), std::invalid_argument);
  CHECK_THROWS_WITH_AS(vertical_ewif(0.5, 2, 1, 1, 0, 0), doctest::Contains("vertical_ewif: "),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(vertical_ewif(0.5, 0.5, 1, -1, 0, 0), doctest::Contains("vertical_ewif: "),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(vertical_ewif(0.5, 0.5, 1, 1, 0, -1), doctest::Contains("vertical_ewif: "),
                       std::invalid_argument);
  const std::array<double, 2> two = {0.5, 0.5}, bad = {0.5, 1.5};
  const std::array<double, 1> one = {0.5};
  CHECK_THROWS_WITH_AS(horizontal_ewif(two, one),
                       "horizontal_ewif: the number of costs is 1, must be that of the rates",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(horizontal_ewif(bad, two), doctest::Contains("horizontal_ewif: "),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(horizontal_ewif_derivative(two, two, 2),
                       doctest::Contains("horizontal_ewif_derivative: at is 2"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(horizontal_ewif_derivative(two, two, -1),
                       doctest::Contains("horizontal_ewif_derivative: at is -1"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(swi(1, 1, two, one), doctest::Contains("swi: the number of costs is 1"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(swi(1, 0, {}, {}), "swi: the cost of all calls is 0.000000, must be > 0",
                       std::invalid_argument);
}
