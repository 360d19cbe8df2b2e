// SPDX-License-Identifier: MIT
// Balance: what drafting may lose, and when it is tried again.
#include <specula/cost/balance.hpp>

#include <doctest/doctest.h>

using specula::Balance;

TEST_CASE("plain tokens add their share, drafted rounds what they gain or lose, up to a most") {
  Balance balance;
  CHECK(balance.left() == Balance::kAtFirst);
  balance.add(1, 1, 0.01, false, false, true);
  CHECK(balance.left() == doctest::Approx(1.71));
  balance.add(1, 2.5, 0.01, true, true, false);
  CHECK(balance.left() == doctest::Approx(0.22));
  for (int i = 0; i < 50; ++i) balance.add(4, 2, 0.01, true, false, false);
  CHECK(balance.left() == 8);
  CHECK(balance.rate() == doctest::Approx(2).epsilon(0.1));
}

TEST_CASE("after losses it is tried again after ever longer pauses, after a gain soon") {
  Balance balance;
  const auto pause = [&] {
    int rounds = 0;
    while (!balance.tries()) balance.add(1, 1, 0.01, false, false, false), ++rounds;
    return rounds;
  };
  CHECK_FALSE(balance.pauses());
  CHECK(pause() == 4);
  for (const int longer : {8, 16, 32, 64, 128, 128}) {
    balance.add(1, 1.1, 0.01, true, true, false);
    CHECK(pause() == longer);
  }
  balance.add(3, 1.1, 0.01, true, true, false);
  CHECK(pause() == 4);
}

TEST_CASE("a fall of the balance says that acceptance has changed, once for each") {
  Balance balance;
  for (int i = 0; i < 20; ++i) CHECK_FALSE(balance.add(2, 1, 0.01, true, false, false));
  int falls = 0;
  for (int i = 0; i < 6; ++i) falls += balance.add(1, 2, 0.01, true, false, false) ? 1 : 0;
  CHECK(falls == 2);
}
