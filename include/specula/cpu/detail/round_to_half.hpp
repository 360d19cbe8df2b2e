// SPDX-License-Identifier: MIT
// Vectors of floats rounded to half floats: the same bits on every instruction set.
#pragma once

#include <cstdint>

#include "specula/base/half.hpp"
#include "specula/simd/compiled.hpp"
#include "specula/simd/isa.hpp"

#if SPECULA_X86
#include <immintrin.h>
#endif

namespace specula::cpu::detail {

using specula::detail::round_to_half;

#if SPECULA_X86
/// Rounds as many as there are whole registers, and returns their number.
[[gnu::target("avx512f")]] inline std::int32_t round_to_half_avx512(const float* x, std::int32_t size,
                                                                    std::uint16_t* out) {
  const simd::WideRegisters used;
  std::int32_t i = 0;
  for (; i + 16 <= size; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
[[gnu::target("avx2,fma,f16c")]] inline std::int32_t round_to_half_avx2(const float* x, std::int32_t size,
                                                                        std::uint16_t* out) {
  const simd::WideRegisters used;
  std::int32_t i = 0;
  for (; i + 8 <= size; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#endif

/// out[i] = round_to_half(x[i]), i < size.
inline void round_to_half(Isa isa, const float* x, std::int32_t size, std::uint16_t* out) {
  std::int32_t i = 0;
#if SPECULA_X86
  if (isa == Isa::avx512) i = round_to_half_avx512(x, size, out);
  if (isa == Isa::avx2) i = round_to_half_avx2(x, size, out);
#endif
  static_cast<void>(isa);
  for (; i < size; ++i) out[i] = round_to_half(x[i]);
}

}  // namespace specula::cpu::detail
