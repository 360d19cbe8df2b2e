// Emulates the AVX-512 intrinsics of distribution/row_kernels_avx512.hpp by two AVX2 registers each, to
// test its kernels on processors without AVX-512. A test that includes this before any header of the
// library runs Isa::avx512 emulated. (SIMDe is no option: its fused products round twice where the
// compiler's baseline has no FMA.)
#pragma once

#ifdef SPECULA_HAS_AVX_KERNELS
#error "include emulated_avx512.hpp before the library's headers"
#endif

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SPECULA_EMULATED_AVX512 1
#define SPECULA_AVX512 __attribute__((target("avx2,fma")))

#include <immintrin.h>

#include <cstdint>

namespace specula_test::emulated {

#define SPECULA_EMULATES SPECULA_AVX512 inline

using Mask = std::uint16_t;
struct Floats {
  __m256 low, high;
};
struct Doubles {
  Floats floats;
};

SPECULA_EMULATES Floats set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
SPECULA_EMULATES Floats load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
SPECULA_EMULATES void store(float* at, Floats a) {
  _mm256_storeu_ps(at, a.low), _mm256_storeu_ps(at + 8, a.high);
}
SPECULA_EMULATES Floats add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
SPECULA_EMULATES Floats sub(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
SPECULA_EMULATES Floats mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
SPECULA_EMULATES Floats fmadd(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
SPECULA_EMULATES Floats fmsub(Floats a, Floats b, Floats c) {
  return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
}
template <int how>
SPECULA_EMULATES Mask compare(Floats a, Floats b) {
  return static_cast<Mask>(_mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, how)) |
                           _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, how)) << 8);
}
/// Zero-masking: 0 where `kept` has no bit.
SPECULA_EMULATES __m256 keep_half(int kept, __m256 a) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(kept), bits), bits);
  return _mm256_and_ps(_mm256_castsi256_ps(set), a);
}
SPECULA_EMULATES Floats keep(Mask kept, Floats a) {
  return {keep_half(kept, a.low), keep_half(kept >> 8, a.high)};
}
SPECULA_EMULATES Floats max(Mask kept, Floats a, Floats b) {
  return keep(kept, {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)});
}
template <int how>
SPECULA_EMULATES Floats round(Mask kept, Floats a) {
  return keep(kept, {_mm256_round_ps(a.low, how), _mm256_round_ps(a.high, how)});
}
/// a * 2^floor(b), rounded once, since the first factor gives a normal number. NaN where
/// a is, since b is then too.
SPECULA_EMULATES __m256 scale_half(__m256 a, __m256 b) {
  const __m256 bounded =
      _mm256_min_ps(_mm256_max_ps(_mm256_floor_ps(b), _mm256_set1_ps(-240)), _mm256_set1_ps(240));
  const __m256i e = _mm256_cvtps_epi32(bounded), first = _mm256_srai_epi32(e, 1),
                one = _mm256_set1_epi32(127);
  const __m256i second = _mm256_sub_epi32(e, first);
  const __m256 part =
      _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, one), 23)));
  return _mm256_mul_ps(part, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, one), 23)));
}
SPECULA_EMULATES Floats scale(Mask kept, Floats a, Floats b) {
  return keep(kept, {scale_half(a.low, b.low), scale_half(a.high, b.high)});
}
template <int half>
SPECULA_EMULATES __m256d extract(Mask, Doubles a) {
  return _mm256_castps_pd(half == 0 ? a.floats.low : a.floats.high);
}

#undef SPECULA_EMULATES

}  // namespace specula_test::emulated

#undef _mm512_cmp_ps_mask
#undef _mm512_mask_cmp_ps_mask
#undef _mm512_maskz_roundscale_ps
#undef _mm512_maskz_extractf64x4_pd
#define __m512 ::specula_test::emulated::Floats
#define _mm512_set1_ps ::specula_test::emulated::set1
#define _mm512_setzero_ps() ::specula_test::emulated::set1(0)
#define _mm512_loadu_ps ::specula_test::emulated::load
#define _mm512_storeu_ps ::specula_test::emulated::store
#define _mm512_add_ps ::specula_test::emulated::add
#define _mm512_sub_ps ::specula_test::emulated::sub
#define _mm512_mul_ps ::specula_test::emulated::mul
#define _mm512_maskz_mul_ps(kept, a, b) \
  ::specula_test::emulated::keep(kept, ::specula_test::emulated::mul(a, b))
#define _mm512_fmadd_ps ::specula_test::emulated::fmadd
#define _mm512_fmsub_ps ::specula_test::emulated::fmsub
#define _mm512_maskz_max_ps ::specula_test::emulated::max
#define _mm512_maskz_roundscale_ps(kept, a, how) ::specula_test::emulated::round<how>(kept, a)
#define _mm512_maskz_scalef_ps ::specula_test::emulated::scale
#define _mm512_cmp_ps_mask(a, b, how) ::specula_test::emulated::compare<how>(a, b)
#define _mm512_mask_cmp_ps_mask(wanted, a, b, how) \
  static_cast<__mmask16>(wanted & ::specula_test::emulated::compare<how>(a, b))
#define _mm512_castps_pd(a) (::specula_test::emulated::Doubles{a})
#define _mm512_maskz_extractf64x4_pd(kept, a, half) ::specula_test::emulated::extract<half>(kept, a)

#endif
