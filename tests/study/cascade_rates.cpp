// SPDX-License-Identifier: MIT
// AcceptanceCurve, and limits of cascades.
#include <specula/study/cascade_rates.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace specula;

TEST_CASE("an acceptance curve repeats its last rate; invalid rates are refused") {
  const AcceptanceCurve curve(std::vector<double>{0.9, 0.7, 0.5});
  CHECK(curve(0) == 0.9);
  CHECK(curve(2) == 0.5);
  CHECK(curve(100) == 0.5);
  CHECK(AcceptanceCurve(0.25)(3) == 0.25);
  CHECK_THROWS_WITH_AS(AcceptanceCurve(1.5), "AcceptanceCurve: a rate is 1.500000, must be in [0, 1]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(AcceptanceCurve(std::vector<double>{}), "AcceptanceCurve: no rates",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(AcceptanceCurve(std::vector<double>{0.5, std::nan("")}),
                       doctest::Contains("AcceptanceCurve: a rate is nan"), std::invalid_argument);
}

TEST_CASE("limits are those of the shapes") {
  const std::array<std::array<std::int32_t, 3>, 3> limits = {{{8, 5, 10}, {0, 1, 10}, {0, 0, 10}}};
  CHECK(limits_vector(limits) == CascadeLimits{{8, 5, 10}, {0, 1, 10}, {0, 0, 10}});
  CHECK(limits_array<3>(limits_vector(limits)) == limits);
  CHECK_THROWS_WITH_AS(limits_array<2>(limits_vector(limits)),
                       doctest::Contains("limits_array: the number of rows is 3, must be that of the array"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(limits_array<2>({{1, 2}, {3}}),
                       doctest::Contains("limits_array: the length of a row is 1, must be that of the array"),
                       std::invalid_argument);
}
