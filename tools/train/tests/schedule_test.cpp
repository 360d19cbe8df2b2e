// SPDX-License-Identifier: MIT
// Budget and learning rate schedule.
#include "schedule.hpp"

#include <doctest/doctest.h>

namespace st = specula_train;

TEST_CASE("the budget that is used up first ends the training") {
  CHECK(st::Budget{.steps = 100, .minutes = 0}.fraction(25, 1e9) == doctest::Approx(0.25));
  CHECK(st::Budget{.steps = 0, .minutes = 2}.fraction(25, 30) == doctest::Approx(0.25));
  CHECK(st::Budget{.steps = 100, .minutes = 2}.fraction(50, 30) == doctest::Approx(0.5));
  CHECK(st::Budget{.steps = 10, .minutes = 0}.fraction(25, 0) == 1);
}

TEST_CASE("warm-up, peak, and a tenth at the end") {
  CHECK(st::learning_rate(1, 0, 0.02) > 0);
  CHECK(st::learning_rate(1, 0.01, 0.02) == doctest::Approx(0.5));
  CHECK(st::learning_rate(1, 0.02, 0.02) == doctest::Approx(1));
  CHECK(st::learning_rate(1, 0.51, 0.02) == doctest::Approx(0.55));
  CHECK(st::learning_rate(1, 1, 0.02) == doctest::Approx(0.1));
}

TEST_CASE("a stopped process does not use up its time") {
  st::StepClock clock(100);
  for (int i = 0; i < 10; ++i) clock.add(1);
  CHECK(clock.seconds() == doctest::Approx(110));
  clock.add(600);
  CHECK(clock.seconds() == doctest::Approx(114));
  clock.add(1);
  CHECK(clock.seconds() == doctest::Approx(115));
}

TEST_CASE("the warm-up takes 30 steps where a fiftieth of the budget is shorter") {
  CHECK(st::Budget{.steps = 10000, .minutes = 0}.warm_up(0, 0) == doctest::Approx(0.02));
  CHECK(st::Budget{.steps = 300, .minutes = 0}.warm_up(0, 0) == doctest::Approx(0.1));
  CHECK(st::Budget{.steps = 20, .minutes = 0}.warm_up(0, 0) == doctest::Approx(0.2));
  const st::Budget minutes{.steps = 0, .minutes = 10};
  CHECK(minutes.warm_up(0, 0) == doctest::Approx(0.02));
  CHECK(minutes.warm_up(4, 8) == doctest::Approx(0.1));  // 300 steps of 2 s
  CHECK(minutes.warm_up(1, 60) == doctest::Approx(0.2));
}

TEST_CASE("a loss that doubles is told once") {
  st::LossWatch watch;
  for (int i = 0; i < 40; ++i) CHECK_FALSE(watch.add(i < 20 ? 4 : 2));
  CHECK_FALSE(watch.add(6));  // one step is not enough
  int told = 0;
  for (int i = 0; i < 40; ++i) told += watch.add(6);
  CHECK(told == 1);
  CHECK(watch.least() < 2.4);
  for (int i = 0; i < 40; ++i) CHECK_FALSE(watch.add(2));
  for (int i = 0; i < 40; ++i) told += watch.add(6);
  CHECK(told == 2);
}

TEST_CASE("what is no step counts as it is") {
  st::StepClock clock;
  for (int i = 0; i < 10; ++i) clock.add(1);
  clock.add_other(600);
  CHECK(clock.seconds() == doctest::Approx(610));
  CHECK(clock.median() == 1);
}
