// CostCurve: the cost of a pass by its number of nodes, given or learned.
#include <specula/cost/cost_curve.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "random.hpp"

using specula::CostCurve;

namespace {

double steps(std::int32_t nodes) { return 1 + 0.3 * ((nodes - 1) / 4); }

}  // namespace

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
  CHECK(same.known() > 1 << 20);
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
  CHECK(other.known() == 5);
  curve.learn(2, 1.0);  // NOLINT(bugprone-use-after-move): that is what is tested
  CHECK(std::isfinite(curve(5)));
}

TEST_CASE("without measurements costs are 0; after one size, that cost at all sizes") {
  CostCurve curve;
  CHECK_FALSE(curve.given());
  CHECK(curve(7) == 0);
  CHECK(curve.known() == 0);
  curve.learn(3, 2.0);
  CHECK(curve.known() == 3);
  for (const int n : {1, 3, 50}) CHECK(curve(n) == doctest::Approx(2.0));
}

TEST_CASE("a learned curve follows a line immediately, and steps after repeated measurements") {
  specula_test::Random random(1);
  CostCurve line, stairs;
  for (int i = 0; i < 40; ++i) {
    const int n = 1 + random.below(16);
    line.learn(n, 0.5 + 0.25 * n);
  }
  for (const int n : {1, 5, 16, 40}) CHECK(line(n) == doctest::Approx(0.5 + 0.25 * n).epsilon(0.02));
  for (int i = 0; i < 4000; ++i) {
    const int n = 1 + random.below(16);
    stairs.learn(n, steps(n));
  }
  for (int n = 1; n <= 16; ++n) CHECK(stairs(n) == doctest::Approx(steps(n)).epsilon(0.05));
  CHECK(stairs(5) - stairs(4) > 0.2);
  CHECK(stairs(8) - stairs(5) < 0.1);
}

TEST_CASE("a single slow pass changes a curve little; a slower machine changes all sizes") {
  CostCurve curve;
  for (int i = 0; i < 200; ++i) curve.learn(1 + i % 4, 1 + 0.2 * (i % 4));
  const double before = curve(3);
  curve.learn(3, 1000);
  CHECK(curve(3) < 1.2 * before);
  for (int i = 0; i < 100; ++i) curve.learn(2, 2 * 1.2);
  CHECK(curve(2) == doctest::Approx(2.4).epsilon(0.1));
  CHECK(curve(4) > 1.6 * 1.5);  // not measured since
}

TEST_CASE("a size far above the line counts from its second pass on; a step is found") {
  CostCurve curve;
  for (int i = 0; i < 20; ++i) curve.learn(1, 1), curve.learn(2, 1), curve.learn(4, 1.02);
  CHECK(curve.step() == 0);
  curve.learn(9, 3);
  CHECK_FALSE(curve.sure(9));
  CHECK(curve.known() == 4);
  CHECK(curve(9) < 1.1);
  curve.learn(9, 3);
  CHECK(curve.sure(9));
  CHECK(curve(9) > 2);
  CHECK(curve.step() == 6);
  curve.learn(6, 1.05);  // below the line: immediately
  CHECK(curve.sure(6));
  CHECK(curve.step() == 7);
  CHECK(CostCurve({1, 5}).step() == 0);
}

TEST_CASE("learned costs are never negative, and the line never falls") {
  specula_test::Random random(2);
  for (int round = 0; round < 200; ++round) {
    CostCurve curve;
    for (int i = 0; i < 30; ++i)
      curve.learn(1 + random.below(8), random.uniform() * (1 + 9 * random.below(2)));
    for (int n = 1; n < 60; ++n) {
      CHECK(curve(n) >= 0);
      CHECK(std::isfinite(curve(n)));
      if (n > 8) CHECK(curve(n + 1) >= curve(n));
    }
  }
  CostCurve curve;  // invalid measurements are ignored
  curve.learn(0, 1);
  curve.learn(2, -1);
  curve.learn(2, std::numeric_limits<double>::quiet_NaN());
  CHECK(curve.known() == 0);
}
