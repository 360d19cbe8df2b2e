// labels: light
// LossBudget: the bound on what cost-aware drafting may lose.
#include <specula/cost/loss_budget.hpp>

#include <doctest/doctest.h>

#include <algorithm>

#include "random.hpp"

using specula::LossBudget;

TEST_CASE("losses never exceed 1% of the tokens plus two passes") {
  specula_test::Random random(1);
  for (int run = 0; run < 200; ++run) {
    LossBudget budget;
    double tokens = 0, lost = 0, most = 0;
    for (int round = 0; round < 500; ++round) {
      const double worst = random.between(0.1, 4), got = 1 + random.below(3);
      if (budget.allows(worst)) {
        const double passes = 1 + worst * (random.bernoulli(0.2) ? 1.0 : random.uniform());
        budget.saw_draft_tokens(got, passes);
        tokens += got, lost += passes - got, most = std::max(most, lost);
        CHECK(lost <= 2 + 0.01 * tokens + 1e-9);
      } else {
        budget.saw_plain(1);
        tokens += 1;
      }
    }
  }
}

TEST_CASE("gains count up to a bound, and a fall of the acceptance is reported once") {
  LossBudget budget;
  CHECK(budget.gain() == 0);
  for (int i = 0; i < 100; ++i) budget.saw_draft_tokens(3, 1.5);
  CHECK(budget.gain() == doctest::Approx(1));
  CHECK(budget.balance() < 8 + 100 * 0.03 + 1e-9);
  CHECK_FALSE(budget.fell());
  const double full = budget.balance();
  int rounds = 0;
  while (!budget.fell()) budget.saw_draft_tokens(1, 2), ++rounds;
  CHECK(rounds == 3);
  CHECK_FALSE(budget.fell());
  budget.take(1);
  CHECK(budget.balance() < full - 3.5);
  for (int i = 0; i < 100000; ++i) budget.saw_plain(1);
  CHECK(budget.balance() == doctest::Approx(256).epsilon(0.001));
}
