// SPDX-License-Identifier: MIT
// CostCurve: the cost of a pass by its number of nodes, given or learned.
#include <specula/cost/cost_curve.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "random.hpp"

using specula::CostCurve;

TEST_CASE("a given curve returns its values, and extrapolates with its last slope") {
  const CostCurve curve({1.0, 1.5, 1.75});
  CHECK(curve.given());
  CHECK(curve(1) == 1.0);
  CHECK(curve(2) == 1.5);
  CHECK(curve(3) == 1.75);
  CHECK(curve(5) == doctest::Approx(2.25));
  CHECK(curve(0) == 1.0);
  CHECK(CostCurve({0.5})(9) == 0.5);
  CostCurve same = curve;
  same.learn(2, 100);
  CHECK(same(2) == 1.5);
  CHECK(same.knows(1 << 20));
}

TEST_CASE("values that are not costs are errors that name them") {
  CHECK_THROWS_WITH_AS(CostCurve(std::vector<double>{}), "CostCurve: no values", std::invalid_argument);
  CHECK_THROWS_WITH_AS(CostCurve({1.0, -0.5}), "CostCurve: value 1 is -0.5, must be finite and >= 0",
                       std::invalid_argument);
  CHECK_THROWS_AS(CostCurve({std::numeric_limits<double>::quiet_NaN()}), std::invalid_argument);
  CHECK_THROWS_AS(CostCurve({std::numeric_limits<double>::infinity()}), std::invalid_argument);
}

TEST_CASE("a moved-from curve can learn") {
  CostCurve curve;
  for (int i = 0; i < 9; ++i) curve.learn(5, 1.0);
  const CostCurve other = std::move(curve);
  CHECK(other.knows(5));
  curve.learn(2, 1.0);  // NOLINT(bugprone-use-after-move): that is what is tested
  CHECK(std::isfinite(curve(5)));
}

TEST_CASE("without measurements costs are 0; after one size, that cost at all sizes") {
  CostCurve curve;
  CHECK_FALSE(curve.given());
  CHECK(curve(7) == 0);
  CHECK(curve.at_most(7) == 0);
  CHECK_FALSE(curve.knows(3));
  curve.learn(3, 2.0);
  CHECK(curve.knows(3));
  for (const int n : {1, 3, 50}) CHECK(curve(n) == doctest::Approx(2.0));
  CHECK(curve.at_most(3) == 2.0);
  CHECK(curve.at_most(6) == 3.0);
}

TEST_CASE("measured sizes have their means, those between and beyond the least that they can cost") {
  CostCurve curve;
  curve.reserve(12);
  for (int i = 0; i < 30; ++i) curve.learn(1, i % 2 ? 1.1 : 0.9), curve.learn(5, 3), curve.learn(9, 3);
  CHECK(curve(1) == doctest::Approx(1).epsilon(0.02));
  CHECK(curve(3) == doctest::Approx(1.5).epsilon(0.02));  // a quarter of the rise at half the way
  CHECK(curve(5) == doctest::Approx(3));
  CHECK(curve(7) == doctest::Approx(3));
  CHECK(curve(12) == doctest::Approx(3));
  CHECK(curve.at_most(3) == doctest::Approx(3));
  CHECK(curve.at_most(12) == doctest::Approx(3 * (1 + 0.5 / 3)));
  CHECK(curve(40) == doctest::Approx(3));  // beyond what was reserved
}

TEST_CASE("a plateau is found by whoever chooses the cheapest, one step up costs a measurement") {
  // 4 nodes cost what 3 do. Each node is worth 0.45.
  const std::vector<double> truth{1, 1.5, 2, 2, 3, 3.5, 4, 4};
  CostCurve curve;
  curve.reserve(8);
  std::vector<int> chosen(9, 0);
  for (int round = 0; round < 200; ++round) {
    curve.learn(1, 1);
    std::int32_t best = 1;
    for (std::int32_t n = 2; n <= 8; ++n)
      if (0.45 * n - curve(n) > 0.45 * best - curve(best)) best = n;
    ++chosen[static_cast<std::size_t>(best)];
    curve.learn(best, truth[static_cast<std::size_t>(best - 1)]);
  }
  CHECK(chosen[4] > 150);
}

TEST_CASE(
    "a size measured once counts half of what it is above the smaller ones, and all of it in at_most()") {
  CostCurve curve;
  for (int i = 0; i < 9; ++i) curve.learn(1, 1);
  curve.learn(2, 2);
  CHECK(curve(2) == doctest::Approx(1.5));
  CHECK(curve.at_most(2) == doctest::Approx(2));
  curve.learn(2, 2);
  CHECK(curve(2) == doctest::Approx(2));
}

TEST_CASE("a single slow pass changes nothing, several in a row do; a larger size may cost less") {
  CostCurve curve;
  for (int i = 0; i < 200; ++i) curve.learn(1 + i % 4, 1 + 0.2 * (i % 4));
  const double before = curve(3);
  curve.learn(3, 1000);
  CHECK(curve(3) == before);
  for (int i = 0; i < 30; ++i) curve.learn(3, 3);
  CHECK(curve(3) == doctest::Approx(3));
  CHECK(curve(4) == doctest::Approx(1.6));
}

TEST_CASE("a cost lies between those of the nearest sizes that are known") {
  CostCurve curve;
  CHECK(curve.bounds(3).first == 0);
  CHECK(curve.bounds(3).second > 1e300);
  for (int i = 0; i < 2; ++i) curve.learn(4, 2.0), curve.learn(8, 3.0);
  CHECK(curve.bounds(2).first == 0);
  CHECK(curve.bounds(2).second == doctest::Approx(2));
  CHECK(curve.bounds(4) == std::pair(curve(4), curve(4)));
  CHECK(curve.bounds(6).first == doctest::Approx(2));
  CHECK(curve.bounds(6).second == doctest::Approx(3));
  CHECK(curve.bounds(9).first == doctest::Approx(3));
  CHECK(curve.bounds(9).second > 1e300);
  CHECK(CostCurve({1, 2}).bounds(3) == std::pair(3.0, 3.0));
}

TEST_CASE("sizes are forgotten, and then cost what they can cost least") {
  CostCurve curve;
  for (int i = 0; i < 9; ++i) curve.learn(1, 1);
  curve.learn(4, 3), curve.learn(4, 3);
  CHECK(curve(4) == doctest::Approx(3));
  for (int i = 0; i < 1500; ++i) curve.learn(1, 1);
  CHECK_FALSE(curve.knows(4));
  CHECK(curve(4) == doctest::Approx(1));
  CHECK(curve.weight(1) == doctest::Approx(32).epsilon(0.01));
}

TEST_CASE("what is measured again as it was is remembered for longer") {
  CostCurve curve;
  const auto remembered = [&] {
    curve.learn(4, 3);
    int rounds = 0;
    for (; curve.knows(4); ++rounds) curve.learn(1, 1);
    return rounds;
  };
  const int once = remembered(), twice = remembered();
  CHECK(once > 600);
  CHECK(twice > 1.9 * once);
}

TEST_CASE(
    "of a size that is not known, the first pass is not believed beyond what it can cost, the second is "
    "bounded") {
  CostCurve curve;
  for (int i = 0; i < 9; ++i) curve.learn(1, 1);
  CHECK(curve.believe(2, 1e5, 2.5) == doctest::Approx(1.5));  // planned and allocated
  CHECK_FALSE(curve.knows(2));
  CHECK(curve.believe(2, 1e5, 2.5) == doctest::Approx(2.5));
  CHECK(curve.knows(2));
  for (int i = 0; i < 9; ++i) curve.believe(2, 1.2, 2.5);
  CHECK(curve(2) == doctest::Approx(1.2).epsilon(0.1));
  CHECK(curve.believe(2, 1e5, 2.5) == curve.at_most(2));  // an interruption
  CHECK(curve(2) < 1.4);
}

TEST_CASE("a clock in steps: single costs are off by a step, their mean is not") {
  CostCurve curve;
  for (int i = 0; i < 100; ++i) curve.learn(1, i % 5 == 0 ? 5.0 : 0.0, 5.0);
  CHECK(curve(1) == doctest::Approx(1).epsilon(0.1));
}

TEST_CASE("learned costs are never negative, and the cautious ones are no less") {
  specula_test::Random random(2);
  for (int round = 0; round < 200; ++round) {
    CostCurve curve;
    for (int i = 0; i < 30; ++i)
      curve.learn(1 + random.below(8), random.uniform() * (1 + 9 * random.below(2)));
    for (int n = 1; n < 60; ++n) {
      CHECK(curve(n) >= 0);
      CHECK(std::isfinite(curve(n)));
      CHECK(curve.at_most(n) >= curve(n) * (1 - 1e-12));
    }
  }
  CostCurve curve;  // invalid measurements are ignored
  curve.learn(0, 1);
  curve.learn(2, -1);
  curve.learn(2, std::numeric_limits<double>::quiet_NaN());
  CHECK_FALSE(curve.knows(2));
}
