// SPDX-License-Identifier: MIT
// labels: long
// Bootstrap intervals over prompts.

#include <specula/study/bootstrap.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace specula;

namespace {

RatioTerms mean_of(const std::vector<double>& values) {
  return {.over = values, .under = std::vector<double>(values.size(), 1.0)};
}

}  // namespace

TEST_CASE("two prompts: all resamples") {
  const RatioTerms terms{.over = {2, 12}, .under = {2, 4}};
  const Interval found = Bootstrap(2).of(terms);
  CHECK(found.value == doctest::Approx(14.0 / 6));  // the ratio of sums, not the mean of 1 and 3
  CHECK(found.low == doctest::Approx(1.0));         // each with probability 1/4
  CHECK(found.high == doctest::Approx(3.0));
}

TEST_CASE("rare resamples are outside of the interval") {
  // One of ten prompts has the value 10: the number of its draws is binomial (10, 1/10), with the 97.5%
  // quantile 3, and 0 with probability 0.35.
  std::vector<double> values(10, 0.0);
  values[4] = 10;
  const Interval found = Bootstrap(10).of(mean_of(values));
  CHECK(found.value == doctest::Approx(1.0));
  CHECK(found.low == 0);
  CHECK(found.high == doctest::Approx(3.0));
}

TEST_CASE("for many prompts the interval is the normal interval of a mean") {
  std::mt19937_64 bits(7);
  std::vector<double> values;
  double sum = 0, squares = 0;
  for (int i = 0; i < 400; ++i) values.push_back(5 + static_cast<double>(bits() % 1000) / 1000);
  for (const double v : values) sum += v;
  for (const double v : values) squares += (v - sum / 400) * (v - sum / 400);
  const double half = 1.96 * std::sqrt(squares / 400 / 400);
  const Interval found = Bootstrap(400).of(mean_of(values));
  CHECK(found.value == doctest::Approx(sum / 400));
  CHECK(std::abs(found.high - found.value - half) < 0.06 * half);
  CHECK(std::abs(found.value - found.low - half) < 0.06 * half);
}

TEST_CASE("the interval contains the true value about as often as stated") {
  std::mt19937_64 bits(3);
  const Bootstrap bootstrap(40, 2000);
  int covered = 0;
  for (int trial = 0; trial < 400; ++trial) {
    RatioTerms terms;  // numerator twice the denominator on average
    for (int p = 0; p < 40; ++p) {
      const double calls = 20 + static_cast<double>(bits() % 21);
      terms.add(calls * (1.5 + static_cast<double>(bits() % 1001) / 1000), calls);
    }
    const Interval found = bootstrap.of(terms);
    covered += found.low <= 2 && 2 <= found.high;
  }
  CHECK(covered > 400 * 0.91);  // with 40 prompts slightly less than 95%
  CHECK(covered < 400 * 0.98);
}

TEST_CASE("two pipelines are compared on the same resamples") {
  RatioTerms a, b;
  for (const double easy : {1.0, 9.0, 2.0, 30.0, 4.0, 5.0}) {
    a.add(1.1 * easy, 1);
    b.add(easy, 1);
  }
  const Bootstrap bootstrap(6);
  const Interval gain = bootstrap.of(a, b);
  CHECK(gain.value == doctest::Approx(1.1));
  CHECK(gain.low == doctest::Approx(1.1));
  CHECK(gain.high == doctest::Approx(1.1));
  CHECK(bootstrap.of(a).high > 1.5 * bootstrap.of(a).value);  // unpaired, the interval is far wider
}

TEST_CASE("the same seed gives the same interval, another seed nearly the same") {
  const RatioTerms terms = mean_of({1, 4, 2, 8, 5, 7, 1, 3});
  const Interval one = Bootstrap(8).of(terms), again = Bootstrap(8).of(terms),
                 other = Bootstrap(8, 10000, 2).of(terms);
  CHECK(one.low == again.low);
  CHECK(one.high == again.high);
  CHECK(other.low == doctest::Approx(one.low).epsilon(0.05));
  CHECK(other.high == doctest::Approx(one.high).epsilon(0.05));
}

TEST_CASE("a denominator of 0") {
  const Interval found = Bootstrap(3).of({.over = {1, 1, 1}, .under = {0, 0, 0}});
  CHECK(found.value == 0);
  CHECK(found.low == 0);
  CHECK(found.high == 0);
  CHECK(RatioTerms{}.ratio() == 0);
}

TEST_CASE("invalid input is refused") {
  CHECK_THROWS_WITH_AS(Bootstrap(1), "Bootstrap: prompts is 1, must be in [2, 65535]", std::invalid_argument);
  CHECK_THROWS_AS(Bootstrap(65536), std::invalid_argument);
  CHECK_THROWS_AS(Bootstrap(3, 39), std::invalid_argument);
  CHECK_THROWS_WITH_AS(Bootstrap(3).of({.over = {1, 1}, .under = {1, 1}}),
                       "Bootstrap: terms of 2 and 2 prompts, must be of 3", std::invalid_argument);
}
