// SPDX-License-Identifier: MIT
// Whether vector code left the upper halves of wide registers in use, which makes all SSE code after it slow.
#pragma once

#include "specula/simd/isa.hpp"

#if SPECULA_X86
#include <cpuid.h>
#endif

namespace specula_test {

/// Requires tells_wide_registers().
inline bool wide_registers_in_use() {
#if SPECULA_X86
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));  // which parts of the state are not as at a start
  return (low & (1u << 2 | 1u << 6)) != 0;                  // upper halves of ymm, and of zmm
#else
  return false;
#endif
}

/// Whether the processor can say so, and does after an instruction that uses them.
inline bool tells_wide_registers() {
#if SPECULA_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!specula::supported(specula::Isa::avx2) || !__get_cpuid_count(0xD, 1, &a, &b, &c, &d) || (a & 4) == 0)
    return false;
  asm volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  const bool used = wide_registers_in_use();
  asm volatile("vzeroupper" ::: "xmm0");
  return used && !wide_registers_in_use();
#else
  return false;
#endif
}

}  // namespace specula_test
