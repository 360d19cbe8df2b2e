// Whether this machine multiplies pairs of bfloat16: asked at run time, as its other instruction sets are.
#pragma once

#include "specula/simd/isa.hpp"

namespace specula::eigen {

/// Whether this machine multiplies pairs of bfloat16 in one instruction.
inline bool has_bf16_products() {
#if SPECULA_X86
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace specula::eigen
