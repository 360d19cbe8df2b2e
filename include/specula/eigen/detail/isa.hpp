// Which vector instructions this machine has: asked at run time, so that one binary serves every x86-64.
#pragma once

#include "specula/base/compiler_options.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define SPECULA_EIGEN_X86 1
#else
#define SPECULA_EIGEN_X86 0
#endif

#if defined(__clang__)
#define SPECULA_EIGEN_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define SPECULA_EIGEN_UNROLL _Pragma("GCC unroll 16")
#else
#define SPECULA_EIGEN_UNROLL
#endif

namespace specula::eigen {

enum class Isa { portable, avx2, avx512 };

/// The widest of the above that this machine has.
inline Isa best_isa() {
#if SPECULA_EIGEN_X86
  if (__builtin_cpu_supports("avx512f")) return Isa::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::portable;
}

/// Whether this machine multiplies pairs of bfloat16 in one instruction.
inline bool has_bf16_products() {
#if SPECULA_EIGEN_X86
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace specula::eigen
