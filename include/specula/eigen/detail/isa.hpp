// Run-time detection of AVX512_BF16, the products of bfloat16 pairs.
#pragma once

#include "specula/simd/isa.hpp"

namespace specula::eigen {

/// Whether this processor multiplies pairs of bfloat16 in one instruction.
inline bool has_bf16_products() {
#if SPECULA_X86
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace specula::eigen
