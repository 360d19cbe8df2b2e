// SPDX-License-Identifier: MIT
// DraftCosts: what draft calls cost, the catch-up, and what is known of both by a bound.
#include <specula/cost/draft_costs.hpp>

#include <doctest/doctest.h>

#include <algorithm>

using namespace specula;

namespace {

constexpr double kPass = 1;  // a plain pass of the target

DraftCosts fresh() {
  DraftCosts costs;
  costs.reserve(16, false);
  costs.assume(0.25);
  return costs;
}

}  // namespace

TEST_CASE("a call costs what is assumed until one is measured") {
  DraftCosts costs = fresh();
  CHECK(costs.calls()(1) == 0.25);
  CHECK(costs.learn_pass(1, 0, 0.1, kPass, 0) == doctest::Approx(0.1));
  CHECK(costs.calls()(1) == doctest::Approx(0.1));
}

TEST_CASE(
    "a first call that catches up is a bound of what a call costs, so that nothing waits for a rejection") {
  DraftCosts costs = fresh();
  costs.learn_pass(1, 1, 0.06, kPass, 0);
  CHECK(costs.calls()(1) == doctest::Approx(0.06));
  costs.learn_pass(1, 0, 0.05, kPass, 0);
  CHECK(costs.calls()(1) < 0.06);
}

TEST_CASE("a late token costs what it took, a call at most, and a guess before") {
  DraftCosts costs = fresh();
  for (int i = 0; i < 4; ++i) costs.learn_pass(1, 0, 0.1, kPass, 0);
  const DraftState late{.missed = 10, .context = 50, .first_call = false};
  CHECK(costs.catch_up(late, 3) == doctest::Approx(4 * 0.25 * 0.1));  // a few stand for all
  CHECK(costs.catch_up({.missed = 1e4, .context = 1e4, .first_call = false}, 3) ==
        doctest::Approx(1e4 * 0.025));
  for (int i = 0; i < 9; ++i) costs.learn_pass(1, 10, 0.1 + 10 * 0.02, kPass, 0);
  CHECK(costs.catch_up(late, 3) == doctest::Approx(0.2).epsilon(0.05));
  for (int i = 0; i < 20; ++i) costs.learn_pass(1, 10, 0.1 + 10 * 7, 1e9, 1e9);
  CHECK(costs.catch_up(late, 3) == doctest::Approx(10 * 0.1));
}

TEST_CASE("what a call seems to take is bounded on every path: first, late, of one text and of many") {
  for (const double late : {0.0, 1.0, 300.0})
    for (const bool known : {false, true})
      for (const bool alone : {false, true}) {
        DraftCosts costs = fresh();
        if (known)
          for (int i = 0; i < 4; ++i)
            costs.learn_pass(1, 0, 0.1, kPass, 0), costs.learn_pass(1, 2, 0.12, kPass, 0);
        const DraftState text{.missed = late, .context = 300, .first_call = false};
        const double believed =
            alone ? costs.learn_round({.calls = 1, .nodes = 1, .seconds = 1e5}, text, 1e5, kPass, 0)
                  : costs.learn_pass(1, late, 1e5, kPass, 0);
        CAPTURE(late);
        CAPTURE(known);
        CAPTURE(alone);
        const double expected = known ? 0.1 + 0.01 * late : 0.25;  // as those before were
        CHECK(believed <= std::max(kPass, 1.01 * expected));
        if (known) CHECK(costs.catch_up(text, 3) <= doctest::Approx(0.01 * late));
        for (int i = 0; i < 6; ++i) costs.learn_pass(1, 0, 0.1, kPass, 0);
        CHECK(costs.calls()(1) < 0.2);
      }
}
