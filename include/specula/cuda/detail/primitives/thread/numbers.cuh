// SPDX-License-Identifier: MIT
// Bit-level float arithmetic for rows: NaN tests, maxima, 2^x, fma, sort keys. The same with and without fast
// math.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "specula/base/logit_weight.hpp"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {
namespace detail {

using specula::detail::kLog2E;

SPECULA_HD std::uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  std::uint32_t out;
  std::memcpy(&out, &x, sizeof out);
  return out;
#endif
}
SPECULA_HD float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
#endif
}
SPECULA_HD double double_of(std::uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(bits));
#else
  double out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
#endif
}

SPECULA_HD float infinity() { return float_of(0x7F800000u); }

// Not by comparison: a compiler that was told that there is no NaN would drop it.
SPECULA_HD bool is_nan(float x) { return (bits_of(x) & 0x7FFFFFFFu) > 0x7F800000u; }
SPECULA_HD bool is_finite(float x) { return (bits_of(x) & 0x7F800000u) != 0x7F800000u; }
/// NaN or +infinity: no logit may be one.
SPECULA_HD bool is_bad_logit(float x) { return is_nan(x) || bits_of(x) == 0x7F800000u; }

SPECULA_HD float to_float(float x) { return x; }
SPECULA_HD float to_float(BFloat16 x) { return float_of(static_cast<std::uint32_t>(x.bits) << 16); }
SPECULA_HD float to_float(Half x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16, rest = x.bits & 0x7FFFu;
  if (rest >= 0x7C00u) return float_of(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
  if (rest >= 0x400u) return float_of(sign | ((rest << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(rest) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
#endif
}

/// NaN if either is, else the larger.
SPECULA_HD float max_or_nan(float a, float b) {
#ifdef __CUDA_ARCH__
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
#else
  return is_nan(a) || a > b ? a : b;
#endif
}

/// The bits of -infinity.
SPECULA_HD constexpr std::uint32_t minus_infinity_word(float) { return 0xFF800000u; }
SPECULA_HD constexpr std::uint32_t minus_infinity_word(Half) { return 0xFC00u; }
SPECULA_HD constexpr std::uint32_t minus_infinity_word(BFloat16) { return 0xFF80u; }

/// max_or_nan of two words, element by element.
SPECULA_HD std::uint32_t max_of_words(float, std::uint32_t a, std::uint32_t b) {
  return bits_of(max_or_nan(float_of(a), float_of(b)));
}
template <class Short>
SPECULA_HD std::uint32_t larger_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out = 0;
  for (int shift = 0; shift <= 16; shift += 16) {
    const Short x{static_cast<std::uint16_t>(a >> shift)}, y{static_cast<std::uint16_t>(b >> shift)};
    const bool first = is_nan(to_float(x)) || to_float(x) > to_float(y);
    out |= static_cast<std::uint32_t>(first ? x.bits : y.bits) << shift;
  }
  return out;
}
SPECULA_HD std::uint32_t max_of_words(Half, std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t out;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
#else
  return larger_halves<Half>(a, b);
#endif
}
SPECULA_HD std::uint32_t max_of_words(BFloat16, std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t out;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
#else
  return larger_halves<BFloat16>(a, b);
#endif
}

/// 2^x.
/// **Range.** [-126, 128); 0 below, and for -infinity; NaN for NaN.
/// **Error.** Two units in the last place: on the host by test, of ex2.approx.ftz by the manual of PTX.
/// **Bits.** Those of the device's instruction, on every architecture; on the host std::exp2's.
SPECULA_HD float exp2_fast(float x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return x < -126.0f ? 0.0f : std::exp2(x);
#endif
}

/// a * b + c with one rounding, whatever the compiler's flags.
SPECULA_HD float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}
SPECULA_HD float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
SPECULA_HD float sum(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
SPECULA_HD float difference(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}
SPECULA_HD float nearest(float x) {
#ifdef __CUDA_ARCH__
  return rintf(x);
#else
  return std::nearbyint(x);
#endif
}
SPECULA_HD double nearest(double x) {
#ifdef __CUDA_ARCH__
  return rint(x);
#else
  return std::nearbyint(x);
#endif
}

/// 2^n for a whole number n <= 0; 0 below -1022.
SPECULA_HD double power_of_two(double n) {
  return n < -1022 ? 0.0 : double_of(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

/// 2^n as a float, for whole n in [-126, 127].
SPECULA_HD float two_to(int n) { return float_of(static_cast<std::uint32_t>(n + 127) << 23); }
/// The whole number n for which a positive, normal x lies in [2^n, 2^(n + 1)).
SPECULA_HD int exponent_of_two(float x) { return static_cast<int>(bits_of(x) >> 23) - 127; }
/// x >= 0 to the nearest whole number, below 2^63.
SPECULA_HD std::uint64_t nearest_whole(float x) {
#ifdef __CUDA_ARCH__
  return __float2ull_rn(x);
#else
  return static_cast<std::uint64_t>(std::nearbyint(x));
#endif
}

/// Larger keys for larger floats: what radix selection counts. Not for NaN.
SPECULA_HD std::uint32_t key_of(float x) {
  const std::uint32_t b = bits_of(x);
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
SPECULA_HD float of_key(std::uint32_t key) { return float_of(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key); }

}  // namespace detail
}  // namespace cuda
}  // namespace specula
