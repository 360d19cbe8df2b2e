// SPDX-License-Identifier: MIT
// AcceptanceEstimator: from the draft's confidence to the acceptance that was seen.
#include <specula/cost/acceptance_estimator.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("an estimate starts with the draft's confidence and converges to the measured acceptance") {
  AcceptanceEstimator record;
  for (const double c : {0.05, 0.5, 0.99}) CHECK(record.accept_probability(c) == doctest::Approx(c));
  CHECK(record.first_probability() == 0.5);
  for (int i = 0; i < 400; ++i) record.saw(0.9, i % 4 == 0);  // an overconfident draft
  CHECK(record.accept_probability(0.9) == doctest::Approx(0.25).epsilon(0.05));
  CHECK(record.accept_probability(0.3) == doctest::Approx(0.3));  // without measurements
  record.fade(0);
  CHECK(record.accept_probability(0.9) == doctest::Approx(0.9));
  for (int i = 0; i < 400; ++i) record.saw_draft_tokens(i % 2 == 0, i % 4 != 3);
  CHECK(record.first_probability() == doctest::Approx(0.5).epsilon(0.02));
  CHECK(record.any_probability() == doctest::Approx(0.75).epsilon(0.02));
}

TEST_CASE("probabilities are within [0, 1], even for invalid confidences") {
  AcceptanceEstimator record;
  for (int i = 0; i < 100; ++i) record.saw(1.0, true), record.saw(0.0, false);
  for (const double c : {0.0, 1e-9, 0.2, 1 - 1e-9, 1.0}) {
    CHECK(record.accept_probability(c) >= 0);
    CHECK(record.accept_probability(c) <= 1);
  }
}

TEST_CASE("the distribution of the draft's confidences is learned from their frequencies") {
  AcceptanceEstimator record;
  CHECK_FALSE(record.each_outlook([](double, double) {}));
  for (int i = 0; i < 30; ++i) record.saw_drafted(i % 3 ? 0.9 : 0.1);
  double shares = 0, mean = 0;
  int bins = 0;
  CHECK(record.each_outlook(
      [&](double probability, double share) { shares += share, mean += share * probability, ++bins; }));
  CHECK(bins == 2);
  CHECK(shares == doctest::Approx(1));
  CHECK(mean == doctest::Approx((2 * 0.9 + 0.1) / 3).epsilon(0.1));
}

TEST_CASE("old rounds weigh less: fade() and keep_at_most() scale every count") {
  AcceptanceEstimator record;
  for (int i = 0; i < 40; ++i) {
    record.saw(0.6, true);
    record.saw_drafted(0.6);
    record.saw_draft_tokens(true, true);
  }
  record.keep_at_most(50);
  CHECK(record.groups() == 40);
  record.keep_at_most(10);
  CHECK(record.groups() == doctest::Approx(10));
  for (int i = 0; i < 10; ++i) {  // as many as the old ones now weigh
    record.saw(0.6, false);
    record.saw_drafted(0.1);
    record.saw_draft_tokens(false, false);
  }
  CHECK(record.accept_probability(0.6) == doctest::Approx((10 + 4 * 0.6) / 24));
  CHECK(record.first_probability() == doctest::Approx(0.5));
  CHECK(record.any_probability() == doctest::Approx(0.5));
  record.each_outlook([](double, double share) { CHECK(share == doctest::Approx(0.5)); });
}

TEST_CASE("low estimates are 0 at first, and count two rejections beside what was seen") {
  AcceptanceEstimator record;
  CHECK(record.accept_at_least(0.9) == 0);
  CHECK(record.first_at_least() == 0);
  for (int i = 0; i < 6; ++i) record.saw(0.9, true), record.saw_draft_tokens(true, true);
  CHECK(record.accept_at_least(0.9) == doctest::Approx(6.0 / 8));
  CHECK(record.first_at_least() == doctest::Approx(6.0 / 8));
  CHECK(record.accept_at_least(0.1) == 0);
}
