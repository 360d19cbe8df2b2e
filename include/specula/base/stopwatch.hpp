// SPDX-License-Identifier: MIT
// Stopwatch: adds the wall time of a scope to a sum; and a thread's processor time. Reads the POSIX clocks,
// because the standard chrono header would be a third of the facade's parsed lines.
#pragma once

#include "specula/base/compiler_options.hpp"

#if __has_include(<unistd.h>)
#include <time.h>
#else
#include <chrono>
#endif

namespace specula::detail {

/// Seconds since a fixed moment; never decreases.
inline double monotonic_seconds() {
#if __has_include(<unistd.h>)
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#else
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
#endif
}

/// Processor time of the calling thread, which stands still while the thread waits for a core; wall time
/// where there is no such clock.
inline double thread_seconds() {
#if __has_include(<unistd.h>) && defined(CLOCK_THREAD_CPUTIME_ID)
  timespec now{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0)
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#endif
  return monotonic_seconds();
}

/// Adds the wall time of a scope to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(&seconds), begin_(monotonic_seconds()) {}
  ~Stopwatch() { *seconds_ += monotonic_seconds() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* seconds_;
  double begin_;
};

}  // namespace specula::detail
