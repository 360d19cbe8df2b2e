// labels: light
// RunningMean: a mean that ignores single outliers.
#include <specula/base/running_mean.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "random.hpp"

using specula::detail::RunningMean;

TEST_CASE("the lesser of two, the median of three, then a mean that outliers do not move") {
  RunningMean mean;
  mean.learn(10);
  CHECK(mean.value == 10);
  CHECK_FALSE(mean.known());
  mean.learn(1);
  CHECK(mean.value == 1);
  CHECK(mean.known());
  mean.learn(10);
  CHECK(mean.value == 1);
  mean.learn(1.2);
  CHECK(mean.value == doctest::Approx(1.05));
  specula_test::Random random(1);
  for (int i = 0; i < 2000; ++i) {
    mean.learn(random.bernoulli(0.02) ? 10.0 : random.between(0.9, 1.1));
    if (i > 100) CHECK(mean.value == doctest::Approx(1).epsilon(0.05));
  }
  for (int i = 0; i < 300; ++i) mean.learn(2);
  CHECK(mean.value == doctest::Approx(2).epsilon(0.02));
  mean.scale(0.5);
  CHECK(mean.value == doctest::Approx(1).epsilon(0.02));
}

TEST_CASE("a mean of 0 follows the values that come after it") {
  RunningMean mean;
  for (int i = 0; i < 5; ++i) mean.learn(0);
  CHECK(mean.value == 0);
  for (int i = 0; i < 3; ++i) mean.learn(2);
  CHECK(mean.value == doctest::Approx(2));
}
