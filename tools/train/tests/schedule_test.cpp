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
  CHECK(st::learning_rate(1, 0) > 0);
  CHECK(st::learning_rate(1, 0.01) == doctest::Approx(0.5));
  CHECK(st::learning_rate(1, 0.02) == doctest::Approx(1));
  CHECK(st::learning_rate(1, 0.51) == doctest::Approx(0.55));
  CHECK(st::learning_rate(1, 1) == doctest::Approx(0.1));
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
