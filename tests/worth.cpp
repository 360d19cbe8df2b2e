#include <specula/worth.hpp>

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "random.hpp"

using namespace specula;

namespace {

CostCurve linear(double first, double more) {
  std::vector<double> seconds;
  for (int n = 0; n < 32; ++n) seconds.push_back(first + more * n);
  return CostCurve(seconds);
}

}  // namespace

TEST_CASE("a record begins with the draft's own confidence and ends with what was seen") {
  GuessRecord record;
  for (const double c : {0.05, 0.5, 0.99}) CHECK(record.chance(c) == doctest::Approx(c));
  CHECK(record.first_chance() == 0.5);
  for (int i = 0; i < 400; ++i) record.saw(0.9, i % 4 == 0);  // an overconfident draft
  CHECK(record.chance(0.9) == doctest::Approx(0.25).epsilon(0.05));
  CHECK(record.chance(0.3) == doctest::Approx(0.3));  // of which nothing was seen
  record.fade(0);
  CHECK(record.chance(0.9) == doctest::Approx(0.9));
  for (int i = 0; i < 400; ++i) record.saw_guesses(i % 2 == 0, i % 4 != 3);
  CHECK(record.first_chance() == doctest::Approx(0.5).epsilon(0.02));
  CHECK(record.any_chance() == doctest::Approx(0.75).epsilon(0.02));
}

TEST_CASE("chances stay within [0, 1], also for confidences that are none") {
  GuessRecord record;
  for (int i = 0; i < 100; ++i) record.saw(1.0, true), record.saw(0.0, false);
  for (const double c : {0.0, 1e-9, 0.2, 1 - 1e-9, 1.0}) {
    CHECK(record.chance(c) >= 0);
    CHECK(record.chance(c) <= 1);
  }
}

TEST_CASE("what the draft may come up with, as often as it does") {
  GuessRecord record;
  CHECK_FALSE(record.each_outlook([](double, double) {}));
  for (int i = 0; i < 30; ++i) record.saw_drafted(i % 3 ? 0.9 : 0.1);
  double shares = 0, mean = 0;
  int bins = 0;
  CHECK(record.each_outlook(
      [&](double chance, double share) { shares += share, mean += share * chance, ++bins; }));
  CHECK(bins == 2);
  CHECK(shares == doctest::Approx(1));
  CHECK(mean == doctest::Approx((2 * 0.9 + 0.1) / 3).epsilon(0.1));
}

TEST_CASE("a guess pays if its chance is at least its cost") {
  GuessRecord record;
  for (int i = 0; i < 1000; ++i)
    record.saw_guesses(false, false);  // nothing comes after it: no looking ahead
  const CostCurve target = linear(1, 0.25), draft = linear(0.1, 0);
  const Worth worth(record, target, draft, 2.0);  // two tokens a second: a node costs half a token
  CHECK(worth.verify_cost(3) == doctest::Approx(3.0));
  CHECK(worth.draft_cost(1) == doctest::Approx(0.2));
  CHECK(worth.keeps(0.51, 4, 32));
  CHECK_FALSE(worth.keeps(0.49, 4, 32));
  CHECK_FALSE(worth.keeps(0.9, 4, 4));  // there is no room for it
  CHECK_FALSE(worth.drafts_on(1.0, 4, 32));
}

TEST_CASE("it looks ahead over a step: several guesses may cost no more than one") {
  GuessRecord record;
  for (int i = 0; i < 1000; ++i) record.saw_guesses(true, true);
  const CostCurve stairs({1, 1, 1, 1, 2.5, 2.5, 2.5, 2.5}), draft({0.0});
  const Worth worth(record, stairs, draft, 1.0);
  CHECK(worth.keeps(0.9, 4, 8));        // 4 * .9 for 1.5
  CHECK_FALSE(worth.keeps(0.9, 4, 5));  // .9 for 1.5
  CHECK_FALSE(worth.keeps(0.2, 4, 8));
}

TEST_CASE("drafting to choose: what is not likely enough will be left out, and costs its draft only") {
  GuessRecord record;
  for (int i = 0; i < 1000; ++i) record.saw_guesses(false, false);
  for (int i = 0; i < 100; ++i) record.saw_drafted(i % 10 == 0 ? 0.997 : 0.01);  // rarely sure, then very
  const CostCurve target = linear(1, 0.5), cheap({0.02}), dear({0.2});
  CHECK(Worth(record, target, cheap, 1.0).drafts_to_choose(1.0, 1, 8));  // .1 * (1 - .5) > .02
  CHECK_FALSE(Worth(record, target, dear, 1.0).drafts_to_choose(1.0, 1, 8));
  CHECK_FALSE(Worth(record, target, cheap, 1.0).drafts_on(1.0, 1, 8));
  CHECK(Worth(record, target, dear, 0.0).drafts_to_choose(1.0, 1, 8));  // no rate, no costs
}

TEST_CASE("the best number of guesses, against trying all") {
  specula_test::Random random(3);
  GuessRecord record;
  for (int round = 0; round < 500; ++round) {
    std::vector<double> seconds{1.0};
    for (int n = 1; n < 20; ++n)
      seconds.push_back(seconds.back() + (random.chance(0.4) ? 0.0 : random.uniform()));
    const CostCurve target(seconds), draft({0.1});
    const Worth worth(record, target, draft, 0.7);
    std::vector<double> chances;
    double chance = 1;
    for (int i = random.below(12); i > 0; --i) chances.push_back(chance *= random.uniform());
    const std::int32_t nodes = 1 + random.below(6), count = worth.best_count(chances, nodes);
    const auto value = [&](std::int32_t n) {
      double v = -(worth.verify_cost(nodes + n) - worth.verify_cost(nodes));
      for (std::int32_t i = 0; i < n; ++i) v += chances[static_cast<std::size_t>(i)];
      return v;
    };
    for (std::int32_t n = 0; n <= static_cast<std::int32_t>(chances.size()); ++n)
      CHECK(value(count) >= value(n) - 1e-12);
  }
}
