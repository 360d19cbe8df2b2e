// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>

namespace specula_test {

inline int skipped_cases = 0;

/// Reports that and why the running test case cannot run here; the caller then returns. scripts/test shows
/// the line at its end, and an executable that checked nothing counts as skipped, not as passed.
inline void skip(const char* reason) {
  ++skipped_cases;
  std::printf("SKIP: %s\n", reason);
}

}  // namespace specula_test
