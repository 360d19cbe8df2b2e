// SPDX-License-Identifier: MIT
#include <specula/base/stopwatch.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("a stopwatch adds the time of its scope") {
  double seconds = 1;
  { const detail::Stopwatch watch(seconds); }
  const double once = seconds;
  CHECK(once >= 1);
  { const detail::Stopwatch watch(seconds); }
  CHECK(seconds >= once);
  CHECK(seconds < 2);
  const double begin = detail::monotonic_seconds();
  {
    const detail::Stopwatch watch(seconds);
    while (detail::monotonic_seconds() < begin + 0.01) continue;
  }
  CHECK(seconds >= once + 0.009);
}
