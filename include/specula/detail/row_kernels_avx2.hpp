// Tile kernels for AVX2 with FMA. The same operations in the same order as the AVX-512 ones: the same bits.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#include <limits>

#include "row_kernels.hpp"

#define SPECULA_AVX2 __attribute__((target("avx2,fma")))

namespace specula::detail {

struct Avx2Kernels {
  SPECULA_AVX2 static float maximum(const float* logits) {
    // maxps returns its second operand where either is NaN, so a NaN must be looked for apart.
    __m256 best[4] = {_mm256_loadu_ps(logits), _mm256_loadu_ps(logits + 8), _mm256_loadu_ps(logits + 16), _mm256_loadu_ps(logits + 24)};
    __m256 nan = _mm256_or_ps(_mm256_cmp_ps(best[0], best[1], _CMP_UNORD_Q), _mm256_cmp_ps(best[2], best[3], _CMP_UNORD_Q));
    for (std::int32_t i = 32; i < kTile; i += 32) {
      const __m256 a = _mm256_loadu_ps(logits + i), b = _mm256_loadu_ps(logits + i + 8);
      const __m256 c = _mm256_loadu_ps(logits + i + 16), d = _mm256_loadu_ps(logits + i + 24);
      nan = _mm256_or_ps(nan, _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), _mm256_cmp_ps(c, d, _CMP_UNORD_Q)));
      best[0] = _mm256_max_ps(best[0], a);
      best[1] = _mm256_max_ps(best[1], b);
      best[2] = _mm256_max_ps(best[2], c);
      best[3] = _mm256_max_ps(best[3], d);
    }
    const __m256 top = _mm256_max_ps(_mm256_max_ps(best[0], best[1]), _mm256_max_ps(best[2], best[3]));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm256_movemask_ps(nan) ? std::numeric_limits<float>::quiet_NaN() : _mm_cvtss_f32(m);
  }

  SPECULA_AVX2 static TileStats stats(const float* logits, double inv_t) {
    const float top = maximum(logits);
    if (top == -std::numeric_limits<float>::infinity()) return {top, 0.0};
    const __m256 shift = _mm256_set1_ps(top), scale = _mm256_set1_ps(static_cast<float>(inv_t * Exponent::kLog2E));
    __m256 sums[16];
    for (std::int32_t j = 0; j < 16; ++j) {
      const float* column = logits + 8 * j;
      const __m256 a = exp2(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(column), shift), scale));
      const __m256 b = exp2(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(column + 128), shift), scale));
      const __m256 c = exp2(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(column + 256), shift), scale));
      const __m256 d = exp2(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(column + 384), shift), scale));
      sums[j] = _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(a, b), c), d);
    }
    return {top, halve(sums)};
  }

  SPECULA_AVX2 static double fill(const float* logits, const Exponent& e, float* weights) {
    const __m256 shift = _mm256_set1_ps(e.shift), scale = _mm256_set1_ps(e.scale);
    const __m256 offset = _mm256_set1_ps(e.offset), cut = _mm256_set1_ps(e.cut);
    __m256 sums[16];
    for (std::int32_t j = 0; j < 16; ++j) {
      sums[j] = _mm256_setzero_ps();
      for (std::int32_t i = 8 * j; i < kTile; i += kColumns) {
        const __m256 l = _mm256_loadu_ps(logits + i);
        const __m256 kept = _mm256_cmp_ps(l, cut, _CMP_NLT_UQ);
        const __m256 w = _mm256_and_ps(kept, exp2(_mm256_fmsub_ps(_mm256_sub_ps(l, shift), scale, offset)));
        _mm256_storeu_ps(weights + i, w);
        sums[j] = _mm256_add_ps(sums[j], w);
      }
    }
    return halve(sums);
  }

  SPECULA_AVX2 static double subtract(float* weights, const float* less, float keep, float take) {
    const __m256 a = _mm256_set1_ps(keep), b = _mm256_set1_ps(take);
    __m256 sums[16];
    for (std::int32_t j = 0; j < 16; ++j) {
      sums[j] = _mm256_setzero_ps();
      for (std::int32_t i = 8 * j; i < kTile; i += kColumns) {
        const __m256 taken = _mm256_mul_ps(b, _mm256_loadu_ps(less + i));
        const __m256 w = _mm256_max_ps(_mm256_fmsub_ps(a, _mm256_loadu_ps(weights + i), taken), _mm256_setzero_ps());
        _mm256_storeu_ps(weights + i, w);
        sums[j] = _mm256_add_ps(sums[j], w);
      }
    }
    return halve(sums);
  }

  static constexpr RowKernels table() { return {maximum, stats, fill, subtract}; }

 private:
  /// 2^y for y < 128; 0 below -126; NaN stays NaN.
  SPECULA_AVX2 __attribute__((always_inline)) static __m256 exp2(__m256 y) {
    const __m256 kept = _mm256_cmp_ps(y, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
    const __m256 r = _mm256_round_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 f = _mm256_sub_ps(y, r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(kExp2[5]), f, _mm256_set1_ps(kExp2[4]));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[3]));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[2]));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[1]));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[0]));
    const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(r), 23);
    const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shifted));
    // NaN + anything in the exponent field may leave NaN: take y itself there.
    return _mm256_and_ps(kept, _mm256_blendv_ps(scaled, y, _mm256_cmp_ps(y, y, _CMP_UNORD_Q)));
  }
  SPECULA_AVX2 __attribute__((always_inline)) static double halve(const __m256* s) {
    __m256 b[8];
    for (std::int32_t j = 0; j < 8; ++j) b[j] = _mm256_add_ps(s[j], s[j + 8]);
    for (std::int32_t j = 0; j < 4; ++j) b[j] = _mm256_add_ps(b[j], b[j + 4]);
    for (std::int32_t j = 0; j < 2; ++j) b[j] = _mm256_add_ps(b[j], b[j + 2]);
    const __m256 a = _mm256_add_ps(b[0], b[1]);
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return static_cast<double>(_mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d))));
  }
};

}  // namespace specula::detail

#undef SPECULA_AVX2
#endif
