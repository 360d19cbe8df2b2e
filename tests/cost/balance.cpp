// SPDX-License-Identifier: MIT
// Balance: what drafting may lose, and when it is tried again.
#include <specula/cost/balance.hpp>

#include <doctest/doctest.h>

using specula::Balance;

TEST_CASE(
    "a balance allows little at first, then a share of the tokens, drafted rounds what they gain or lose") {
  Balance balance;
  CHECK(balance.left() == Balance::kAtFirst);
  for (int i = 0; i < 40; ++i) balance.add(1, 1, 0.01, false, false, true);
  CHECK(balance.left() == Balance::kAtFirst);
  for (int i = 0; i < 160; ++i) balance.add(1, 1, 0.01, false, false, true);
  CHECK(balance.left() == doctest::Approx(0.015 * 200));
  for (int i = 0; i < 200; ++i) balance.add(1, 1, 0.01, false, false, true);
  CHECK(balance.left() == doctest::Approx(Balance::kLater + 0.01 * 400));
  balance.add(1, 2.5, 0.01, true, true, false);
  CHECK(balance.left() == doctest::Approx(Balance::kLater + 0.01 * 401 - 1.5));
  for (int i = 0; i < 300; ++i) balance.add(4, 2, 0.01, true, false, false);
  CHECK(balance.left() == 8);
  CHECK(balance.rate() == doctest::Approx(2).epsilon(0.1));
}

TEST_CASE("what others lose is lost to all; what they gain is theirs alone") {
  Balance balance;
  balance.add_other(1, 1.5, 0.01);
  CHECK(balance.left() == doctest::Approx(Balance::kAtFirst - 0.5));
  CHECK(balance.left_for_others() == doctest::Approx(Balance::kAtFirst - 0.5));
  balance.add_other(4, 1.5, 0.01);
  CHECK(balance.left() == doctest::Approx(Balance::kAtFirst));
  CHECK(balance.left_for_others() == doctest::Approx(Balance::kAtFirst + 2));
  CHECK_FALSE(balance.pauses());
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
