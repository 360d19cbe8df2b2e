#pragma once

#include <cstdio>

namespace specula_test {

inline int skipped_cases = 0;

/// Says that the running test case cannot be run here and why; the caller then returns. The line is shown at
/// the end of scripts/test, and an executable that checked nothing because of it counts as skipped, not as
/// passed.
inline void skip(const char* reason) {
  ++skipped_cases;
  std::printf("SKIP: %s\n", reason);
}

}  // namespace specula_test
