// SPDX-License-Identifier: MIT
// Pace: seconds of passes as costs, on a machine that others load, and by clocks that advance in steps or not
// at all.
#include <specula/cost/pace.hpp>

#include <doctest/doctest.h>

using specula::Pace;

namespace {

/// A plain pass, or one over more nodes, of a size that is known to cost `units`.
void pass(Pace& pace, double seconds, double units, bool plain = true) {
  if (!pace.reads(seconds)) return pace.begin(seconds);
  if (plain)
    pace.see_plain(seconds, units, units, false);
  else
    pace.see_other(seconds, units, units);
}

}  // namespace

TEST_CASE("the first plain pass is the unit; one slow pass changes nothing, three do") {
  Pace pace;
  CHECK_FALSE(pace.reads(2));
  pace.begin(2);
  CHECK(pace.cost(3) == doctest::Approx(1.5));
  pass(pace, 2e5, 1);
  CHECK(pace.cost(2) == doctest::Approx(1));
  for (int i = 0; i < 3; ++i) pass(pace, 6, 1);
  CHECK(pace.cost(6) == doctest::Approx(1));
}

TEST_CASE("plain passes are asked for, ever more rarely while they agree, and at once after three doubts") {
  Pace pace;
  for (int i = 0; i < 4; ++i) pass(pace, 2, 1);
  int others = 0;
  const auto until_asked = [&] {
    others = 0;
    while (!pace.asks()) pass(pace, 3, 1.5, false), ++others;
    pass(pace, 2, 1);
    return others;
  };
  CHECK(until_asked() == 4);
  CHECK(until_asked() == 8);
  CHECK(until_asked() == 16);
  others = 0;
  while (!pace.asks()) pass(pace, 9, 1.5, false), ++others;
  CHECK(others == 3);
  pass(pace, 6, 1);  // slow at all sizes
  CHECK(pace.cost(6) == doctest::Approx(1));
}

TEST_CASE("where passes vary, three that differ say nothing; a machine that has become slow is still seen") {
  Pace pace;
  const double others[] = {1.5, 2.2, 1.4, 2.6, 1.6, 1.2};
  int asked = 0, rounds = 0;
  pass(pace, 1, 1);
  for (int i = 0; i < 600; ++i) {
    const bool plain = pace.asks();
    if (i >= 60) asked += plain ? 1 : 0, ++rounds;  // once it knows the noise
    pass(pace, plain ? 0.8 + 0.1 * (i % 5) : others[i % 6], plain ? 1 : 1.5, plain);
  }
  CHECK(asked * 16 < rounds);  // half of all rounds otherwise
  for (int i = 0; i < 100; ++i) pass(pace, pace.asks() ? 6 : 9, pace.asks() ? 1 : 1.5, pace.asks());
  CHECK(pace.cost(6) == doctest::Approx(1).epsilon(0.2));
}

TEST_CASE("a clock in steps has a slack of one, and does not change the pace; a fine one has none") {
  Pace pace;
  for (int i = 0; i < 50; ++i) pass(pace, i % 5 == 0 ? 10.0 : 0.0, 1);
  CHECK(pace.cost(pace.slack() * 10) == doctest::Approx(pace.slack()));
  CHECK(pace.slack() == doctest::Approx(1));  // the unit is the step that was seen first
  CHECK_FALSE(pace.stands_still());
  Pace fine;
  for (int i = 0; i < 50; ++i) pass(fine, 2, 1);
  CHECK(fine.slack() == 0);
}

TEST_CASE("a clock that does not advance during 32 passes stands still, until it advances") {
  Pace pace;
  for (int i = 0; i < 31; ++i) pace.reads(0);
  CHECK_FALSE(pace.stands_still());
  pace.reads(0);
  CHECK(pace.stands_still());
  pace.reads(1);
  CHECK_FALSE(pace.stands_still());
}
