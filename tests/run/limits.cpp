// SPDX-License-Identifier: MIT
// Limits and sinks of generate().
#include <specula/run/limits.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

using namespace specula;

TEST_CASE("limits at the ends of their ranges are accepted; errors name those beyond") {
  const std::vector<Token> ends{0, 4}, beyond{4, 5}, negative{-1};
  CHECK_NOTHROW(validate(Limits{.max_new_tokens = 0, .stop = ends}, 5));
  CHECK_THROWS_WITH_AS(validate(Limits{.max_new_tokens = -1}, 5),
                       "Limits::max_new_tokens is -1, must be in [0, 2147483647]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(validate(Limits{.stop = beyond}, 5), "Limits::stop[1] is 5, must be in [0, 4]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(validate(Limits{.stop = negative}, 5), "Limits::stop[0] is -1, must be in [0, 4]",
                       std::invalid_argument);
}

TEST_CASE("a sink returns nothing, or whether to continue") {
  const auto silent = [](Tokens) {};
  const auto cancels = [](Tokens) { return false; };
  const auto text = [](Tokens) { return std::vector<Token>(); };
  const auto other = [](double*) {};
  CHECK(TokenSink<decltype(silent)>);
  CHECK(TokenSink<decltype(cancels)>);
  CHECK(!TokenSink<decltype(text)>);
  CHECK(!TokenSink<decltype(other)>);
}
