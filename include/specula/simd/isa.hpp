// SPDX-License-Identifier: MIT
// Instruction sets of the vector code, and run-time detection of those that this processor has, so that one
// binary serves every x86-64.
#pragma once

#include <cstdint>

#include "specula/base/compiler_options.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
/// Whether the vector code for x86-64 is compiled.
#define SPECULA_X86 1
#else
#define SPECULA_X86 0
#endif

namespace specula {

/// `portable` is what the compiler generates for the target it was given: SSE2, NEON. `reference` is double
/// precision, one token after the other: for tests of rows; models do not support it.
enum class Isa : std::uint8_t { reference, portable, avx2, avx512 };

/// Whether this processor has `isa`; avx2 is with FMA and F16C.
inline bool supported(Isa isa) {
#if SPECULA_X86
  if (isa == Isa::avx512) return __builtin_cpu_supports("avx512f");
#if defined(__clang__) && __clang_major__ < 19  // it cannot ask for F16C, which processors with AVX2 have
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  if (isa == Isa::avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#endif
#endif
  return isa == Isa::reference || isa == Isa::portable;
}

/// The widest of them that this processor has.
inline Isa best_isa() {
  return supported(Isa::avx512) ? Isa::avx512 : supported(Isa::avx2) ? Isa::avx2 : Isa::portable;
}

}  // namespace specula
