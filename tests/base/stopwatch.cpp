// SPDX-License-Identifier: MIT
#include <specula/base/stopwatch.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

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

TEST_CASE("a thread's processor time grows while it computes, and stands still while it sleeps") {
  double begin = detail::thread_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  CHECK(detail::thread_seconds() - begin < 0.03);
  begin = detail::thread_seconds();
  while (detail::thread_seconds() < begin + 0.002) continue;
  const double wall = detail::monotonic_seconds();
  begin = detail::thread_seconds();
  while (detail::monotonic_seconds() < wall + 0.002) continue;
  CHECK(detail::thread_seconds() > begin);
}
