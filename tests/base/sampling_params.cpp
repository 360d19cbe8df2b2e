// SPDX-License-Identifier: MIT
// SamplingParams: valid ranges and error messages.
#include <specula/base/sampling_params.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>

#include <specula/base/fields.hpp>

using namespace specula;

TEST_CASE("valid sampling parameters") {
  validate({});
  validate({.temperature = 0});
  validate({.temperature = 1e-4f, .top_k = 1, .top_p = 1e-6f, .min_p = 1});
  validate({.temperature = 1e6f, .top_k = std::numeric_limits<std::int32_t>::max()});
  CHECK(SamplingParams{.temperature = 0}.greedy());
  CHECK(!SamplingParams{}.greedy());
  CHECK(!SamplingParams{}.truncates());
  CHECK(SamplingParams{.top_k = 1}.truncates());
  CHECK(SamplingParams{.top_p = 0.9f}.truncates());
  CHECK(SamplingParams{.min_p = 0.1f}.truncates());
}

TEST_CASE("invalid sampling parameters, and their messages") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  using Error = std::invalid_argument;
  CHECK_THROWS_WITH_AS(validate({.temperature = -1}),
                       "SamplingParams::temperature is -1, must be finite and >= 0", Error);
  CHECK_THROWS_WITH_AS(validate({.temperature = inf}),
                       "SamplingParams::temperature is inf, must be finite and >= 0", Error);
  CHECK_THROWS_AS(validate({.temperature = nan}), Error);
  CHECK_THROWS_WITH_AS(validate({.temperature = 5e-5f}),
                       "SamplingParams::temperature is 5e-05, must be 0 (greedy) or at least 1e-4", Error);
  CHECK_THROWS_WITH_AS(validate({.temperature = 1e-30f}),
                       "SamplingParams::temperature is 1e-30, must be 0 (greedy) or at least 1e-4", Error);
  CHECK_THROWS_WITH_AS(validate({.top_k = -3}), "SamplingParams::top_k is -3, must be >= 0 (0 is off)",
                       Error);
  CHECK_THROWS_WITH_AS(validate({.top_p = 0}), "SamplingParams::top_p is 0, must be in (0, 1]", Error);
  CHECK_THROWS_AS(validate({.top_p = 1.5f}), Error);
  CHECK_THROWS_AS(validate({.top_p = nan}), Error);
  CHECK_THROWS_WITH_AS(validate({.min_p = -0.5f}), "SamplingParams::min_p is -0.5, must be in [0, 1]", Error);
  CHECK_THROWS_AS(validate({.min_p = 2}), Error);
  CHECK_THROWS_WITH_AS(validate({.min_p = nan}), "SamplingParams::min_p is nan, must be in [0, 1]", Error);
}
