// SPDX-License-Identifier: MIT
// Exponentials of SIMD vectors: 2^y for weights of rows, exp for the functions between a decoder's products.
#pragma once

#include <cstdint>
#include <limits>

#include "specula/simd/vectors.hpp"

namespace specula::simd {

// 2^f on [-1/2, 1/2], relative error 1.6e-7 (minimax, found by Lawson's iteration).
inline constexpr float kExp2[6] = {1.0000001f,  0.69314694f,  0.2402212f,
                                   0.05550713f, 0.009675542f, 0.0013276472f};

/// p = factor * 2^f for f in [-1/2, 1/2]; `factor` a power of two.
template <Isa isa>
[[gnu::always_inline]] inline void polynomial(typename Vectors<isa>::Floats& p,
                                              const typename Vectors<isa>::Floats& f, float factor) {
  using Floats = typename Vectors<isa>::Floats;
  p = Floats{} + kExp2[5] * factor;
  SPECULA_UNROLL_LANES for (int c = 4; c >= 0; --c)
      Vectors<isa>::multiply_add(p, p, f, Floats{} + kExp2[c] * factor);
}

/// y = 2^y.
/// **Range.** [-126, 126); 0 below, and if `bounded` where l < least; NaN for NaN.
/// **Error.** Below 4e-7, relative.
/// **Bits.** The same in every lane, on AVX2 and AVX-512 too.
template <Isa isa, bool bounded>
[[gnu::always_inline]] inline void exp2_where(typename Vectors<isa>::Floats& y,
                                              const typename Vectors<isa>::Floats& l,
                                              const typename Vectors<isa>::Floats& least) {
  using V = Vectors<isa>;
  using Floats = typename V::Floats;
  using Words = typename V::Words;
  Floats p, n, f;
#if SPECULA_X86_ASM
  if constexpr (isa == Isa::avx512) {
    std::uint16_t kept;  // compared by "not less than", which NaN is
    const Floats smallest = Floats{} - 126.0f;
    __asm__("vcmpps $5, %2, %1, %0" : "=Yk"(kept) : "v"(y), "vm"(smallest));
    if constexpr (bounded) __asm__("vcmpps $5, %2, %1, %0%{%0%}" : "+Yk"(kept) : "v"(l), "vm"(least));
    __asm__("vrndscaleps $8, %1, %0" : "=v"(n) : "v"(y));
    f = y - n;
    polynomial<isa>(p, f, 1);
    __asm__("vscalefps %1, %2, %0%{%3%}%{z%}" : "=v"(y) : "v"(n), "v"(p), "Yk"(kept));
    return;
  }
#endif
#if SPECULA_X86_ASM
  if constexpr (isa == Isa::avx2) {
    __asm__("vroundps $8, %1, %0" : "=x"(n) : "x"(y));
    f = y - n;
    polynomial<isa>(p, f, 1);
    // NaN converts to 0x80000000, which is shifted out: p, also NaN, is unchanged.
    p = Floats(Words(p) + (Words(__builtin_convertvector(n, typename V::Ints)) << 23));
    y = y < -126.0f ? Floats{} : p;
    if constexpr (bounded) y = l < least ? Floats{} : y;
    return;
  }
#endif
  // Applies the bound to the input, since g++ 12 compiles a nested selection for AVX-512 lane by lane.
  if constexpr (bounded) y = l < least ? Floats{} - std::numeric_limits<float>::infinity() : y;
  // Adding 1.5 * 2^23 leaves the nearest integer n in the low bits. 128 more make them the exponent of 2^(n +
  // 1), and the polynomial's coefficients are halved, which is exact.
  constexpr float kRound = 12582912.0f + 128.0f;
  const Floats shifted = y + kRound;
  n = shifted - kRound, f = y - n;
  polynomial<isa>(p, f, 0.5f);
  p = p * Floats(Words(shifted) << 23);
  y = y < -126.0f ? Floats{} : p;
}
template <Isa isa>
[[gnu::always_inline]] inline void exp2(typename Vectors<isa>::Floats& y) {
  exp2_where<isa, false>(y, y, y);
}

/// x = exp(x). Polynomial: Cephes, expf.
/// **Range.** [-87, 88]; 0 below and for NaN, exp(88) above.
/// **Error.** Below 2e-7, relative.
/// **Bits.** The same in every lane; instruction sets may differ.
template <Isa isa>
[[gnu::always_inline]] inline void exp(typename Vectors<isa>::Floats& x) {
  using V = Vectors<isa>;
  using Floats = typename V::Floats;
  using Ints = typename V::Ints;
  const Ints below = ~(x >= -87.0f);
  V::select(x, below, Floats{});
  V::select(x, x > 88.0f, Floats{} + 88.0f);
  const Floats shifted =
      x * 1.44269504088896341f + 12582912.0f;  // adding 1.5 * 2^23 rounds to the nearest integer
  const Floats n = shifted - 12582912.0f;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  x = p * Floats((__builtin_convertvector(n, Ints) + 127) << 23);
  V::select(x, below, Floats{});
}

}  // namespace specula::simd
