// DraftCosts: the cost of a draft call and of its catch-up.
#include <specula/cost/draft_costs.hpp>

#include <doctest/doctest.h>

using namespace specula;

namespace {

/// One call that took `seconds`.
Usage call(double seconds) { return {.calls = 1, .nodes = 1, .seconds = seconds}; }

}  // namespace

TEST_CASE("the first call includes the prompt's cost; the second one gives the cost of a call") {
  DraftCosts costs;
  costs.start();
  CHECK_FALSE(costs.learns_calls());
  costs.learn(call(2.1), 100);  // 100 tokens of the prompt at 0.02 each
  CHECK(costs.learns_calls());
  costs.learn(call(0.1), 102);
  CHECK_FALSE(costs.learns_calls());
  CHECK(costs.calls()(1) == doctest::Approx(0.1));
  CHECK(costs.catch_up(104) == 0);
  costs.start();
  CHECK(costs.catch_up(200) == doctest::Approx(200 * 0.021 - 0.1));
  CHECK(costs.learn(call(4.1), 200) == doctest::Approx(4.0));
  CHECK(costs.learn(call(9), 201) == 0);  // an outlier, not a pause
}

TEST_CASE("catch-up after a pause is assumed to cost a call per token at most, then as measured") {
  DraftCosts costs;
  costs.start();
  for (int i = 0; i < 4; ++i) costs.learn(call(0.1), 10 + i);
  CHECK(costs.learns_pauses());
  CHECK_FALSE(costs.paused_too_short());
  costs.pause(1);
  CHECK(costs.paused_too_short());
  costs.pause(5);
  CHECK_FALSE(costs.paused_too_short());
  CHECK(costs.catch_up(20) == doctest::Approx(0.6));
  CHECK(costs.learn(call(0.1 + 6 * 0.01), 20) == doctest::Approx(0.06));
  CHECK_FALSE(costs.learns_pauses());
  costs.pause(50);
  CHECK(costs.catch_up(70) == doctest::Approx(50 * (0.01 + 0.06) / 6.1));
  CHECK(costs.learn(call(1000), 70) == doctest::Approx(5));  // an outlier
  CHECK(costs.calls()(1) == doctest::Approx(0.1));
}

TEST_CASE("given costs do not depend on the clock") {
  DraftCosts costs(CostCurve({0.1, 0.2, 0.3}));
  costs.start();
  CHECK_FALSE(costs.learns_calls());
  CHECK(costs.catch_up(100) == 0);
  costs.pause(3);
  CHECK(costs.catch_up(100) == doctest::Approx(0.3));
  CHECK(costs.learn(call(77), 103) == doctest::Approx(0.3));
  CHECK_FALSE(costs.learns_pauses());
  CHECK(costs.learn({}, 103) == 0);
}
