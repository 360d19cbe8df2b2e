// Tile kernels for AVX-512F. The same operations in the same order as the AVX2 ones: the same bits.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SPECULA_HAS_AVX_KERNELS 1

#include <immintrin.h>

#include <cmath>
#include <limits>

#include "specula/distribution/row_kernels.hpp"

#ifndef SPECULA_AVX512  // tests emulate the instructions
#define SPECULA_AVX512 __attribute__((target("avx512f")))
#endif

namespace specula::detail {

struct Avx512Kernels {
  SPECULA_AVX512 static float maximum(const float* logits) {
    // maxps returns its second operand where either is NaN, so NaN needs a test of its own.
    __m512 best[4] = {_mm512_loadu_ps(logits), _mm512_loadu_ps(logits + 16), _mm512_loadu_ps(logits + 32),
                      _mm512_loadu_ps(logits + 48)};
    int nan = _mm512_cmp_ps_mask(best[0], best[1], _CMP_UNORD_Q) |
              _mm512_cmp_ps_mask(best[2], best[3], _CMP_UNORD_Q);
    for (std::int32_t i = 64; i < kTile; i += 64) {
      const __m512 a = _mm512_loadu_ps(logits + i), b = _mm512_loadu_ps(logits + i + 16);
      const __m512 c = _mm512_loadu_ps(logits + i + 32), d = _mm512_loadu_ps(logits + i + 48);
      nan |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) | _mm512_cmp_ps_mask(c, d, _CMP_UNORD_Q);
      best[0] = max(best[0], a);
      best[1] = max(best[1], b);
      best[2] = max(best[2], c);
      best[3] = max(best[3], d);
    }
    const __m512 top = max(max(best[0], best[1]), max(best[2], best[3]));
    return nan ? std::numeric_limits<float>::quiet_NaN() : reduce_max(top);
  }

  SPECULA_AVX512 static void stats(const float* logits, std::int32_t tiles, double inv_t, TileStats* out) {
    const float factor = static_cast<float>(inv_t * kLog2E);
    const __m512 scale = _mm512_set1_ps(factor);
    float top = maximum(logits);
    for (std::int32_t t = 0; t < tiles; ++t, logits += kTile) {
      // The maximum of the next tile is computed on the way: its loads overlap with this tile's arithmetic.
      const float* next = t + 1 < tiles ? logits + kTile : logits;
      out[t] = tile_unit(top, factor);
      // Where the unit is exact in a float, so is the fused product, which saves the subtraction.
      const bool large = std::abs(out[t].unit) >= 0x1p22;
      const Lanes lanes{_mm512_set1_ps(large ? top : 0), scale,
                        _mm512_set1_ps(large ? -out[t].rest : static_cast<float>(out[t].unit)),
                        _mm512_setzero_ps()};
      __m512 sums[8];
      const float ahead =
          large ? columns<true>(lanes, logits, next, sums) : columns<false>(lanes, logits, next, sums);
      out[t].sum = top == -std::numeric_limits<float>::infinity() ? empty(logits) : halve(sums);
      top = ahead;
    }
  }

  SPECULA_AVX512 static double fill(const float* logits, const Exponent& e, float* weights) {
    const Lanes lanes = lanes_of(e);
    __m512 sums[8] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 8
      for (std::int32_t j = 0; j < 8; ++j) {
        const __m512 w = weight(lanes, logits + row + 16 * j);
        _mm512_storeu_ps(weights + row + 16 * j, w);
        sums[j] = _mm512_add_ps(sums[j], w);
      }
    return halve(sums);
  }

  SPECULA_AVX512 static double subtract(float* weights, const float* less, float keep, float take) {
    const __m512 a = _mm512_set1_ps(keep), b = _mm512_set1_ps(take);
    __m512 sums[8] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 8
      for (std::int32_t j = 0; j < 8; ++j) {
        float* at = weights + row + 16 * j;
        const __m512 w = less_by(a, _mm512_loadu_ps(at), b, _mm512_loadu_ps(less + row + 16 * j));
        _mm512_storeu_ps(at, w);
        sums[j] = _mm512_add_ps(sums[j], w);
      }
    return halve(sums);
  }

  SPECULA_AVX512 static double difference(const float* logits, const Exponent& e, const float* less,
                                          const Exponent& f, float keep, float take) {
    const Lanes lanes = lanes_of(e), other = lanes_of(f);
    const __m512 a = _mm512_set1_ps(keep), b = _mm512_set1_ps(take);
    __m512 sums[8] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 8
      for (std::int32_t j = 0; j < 8; ++j) {
        const std::int32_t i = row + 16 * j;
        sums[j] = _mm512_add_ps(sums[j], less_by(a, weight(lanes, logits + i), b, weight(other, less + i)));
      }
    return halve(sums);
  }

  SPECULA_AVX512 static double cross(const float* target, const Exponent& e, const float* draft,
                                     const Exponent& f, float keep, float take, float* out) {
    const Lanes lanes = lanes_of(e), other = lanes_of(f);
    const __m512 a = _mm512_set1_ps(keep), b = _mm512_set1_ps(take), zero = _mm512_setzero_ps();
    __m512 sums[8] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 8
      for (std::int32_t j = 0; j < 8; ++j) {
        const std::int32_t i = row + 16 * j;
        const __m512 log_q = power(other, _mm512_loadu_ps(draft + i));
        const __m512 p = exp2(power(lanes, _mm512_loadu_ps(target + i)));
        _mm512_storeu_ps(out + i, _mm512_fmsub_ps(a, exp2(log_q), _mm512_mul_ps(b, p)));
        const __mmask16 any = _mm512_cmp_ps_mask(p, zero, _CMP_NEQ_UQ);
        sums[j] = _mm512_add_ps(sums[j], _mm512_maskz_mul_ps(any, p, log_q));
      }
    return halve(sums);
  }

  SPECULA_AVX512 static std::int32_t above(const float* logits, float bound, std::int32_t* places) {
    const __m512 limit = _mm512_set1_ps(bound);
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < kTile; i += 32) {
      std::uint32_t mask = _mm512_cmp_ps_mask(_mm512_loadu_ps(logits + i), limit, _CMP_GT_OQ);
      mask |=
          static_cast<std::uint32_t>(_mm512_cmp_ps_mask(_mm512_loadu_ps(logits + i + 16), limit, _CMP_GT_OQ))
          << 16;
      for (; mask != 0; mask &= mask - 1) places[count++] = i + __builtin_ctz(mask);
    }
    return count;
  }

  static constexpr RowKernels table() { return {maximum, stats, fill, subtract, difference, cross, above}; }

 private:
  /// The sum of a tile whose maximum is -infinity: 0, or NaN if it holds one, which maxps misses.
  SPECULA_AVX512 static double empty(const float* logits) {
    return std::isnan(maximum(logits)) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  }
  // The maskz forms with a full mask are the plain instructions; the plain intrinsics draw g++ 12's false
  // warning of uninitialised use (GCC bug 105593).
  SPECULA_AVX512 __attribute__((always_inline)) static __m512 max(__m512 a, __m512 b) {
    return _mm512_maskz_max_ps(0xFFFF, a, b);
  }
  template <int half>
  SPECULA_AVX512 __attribute__((always_inline)) static __m256 half_of(__m512 a) {
    return _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, _mm512_castps_pd(a), half));
  }
  SPECULA_AVX512 __attribute__((always_inline)) static float reduce_max(__m512 a) {
    const __m256 b = _mm256_max_ps(half_of<0>(a), half_of<1>(a));
    const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
  }

  struct Lanes {
    __m512 shift, scale, offset, min_logit;
  };
  SPECULA_AVX512 static Lanes lanes_of(const Exponent& e) {
    return {_mm512_set1_ps(e.shift), _mm512_set1_ps(e.scale), _mm512_set1_ps(e.offset),
            _mm512_set1_ps(e.min_logit)};
  }
  /// log2 of a weight, ignoring truncation.
  SPECULA_AVX512 __attribute__((always_inline)) static __m512 power(const Lanes& lanes, __m512 l) {
    return _mm512_fmsub_ps(_mm512_sub_ps(l, lanes.shift), lanes.scale, lanes.offset);
  }
  /// Sums of a tile's columns; returns the maximum of `next`.
  template <bool large>
  SPECULA_AVX512 __attribute__((always_inline)) static float columns(const Lanes& lanes, const float* logits,
                                                                     const float* next, __m512* sums) {
    __m512 best = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    for (std::int32_t j = 0; j < 8; ++j) {
      const std::int32_t column = 16 * j;
      __m512 sum = exp2(above_unit<large>(lanes, logits + column));
      sum = _mm512_add_ps(sum, exp2(above_unit<large>(lanes, logits + column + 128)));
      sum = _mm512_add_ps(sum, exp2(above_unit<large>(lanes, logits + column + 256)));
      sums[j] = _mm512_add_ps(sum, exp2(above_unit<large>(lanes, logits + column + 384)));
      const float* ahead = next + 4 * column;  // in order, for the hardware prefetcher
      const __m512 a = max(_mm512_loadu_ps(ahead), _mm512_loadu_ps(ahead + 16));
      const __m512 b = max(_mm512_loadu_ps(ahead + 32), _mm512_loadu_ps(ahead + 48));
      best = max(best, max(a, b));
    }
    return reduce_max(best);
  }
  /// Exponents of logits relative to the tile's unit.
  template <bool large>
  SPECULA_AVX512 __attribute__((always_inline)) static __m512 above_unit(const Lanes& lanes,
                                                                         const float* logits) {
    const __m512 l = _mm512_loadu_ps(logits);
    return large ? power(lanes, l) : _mm512_fmsub_ps(l, lanes.scale, lanes.offset);
  }
  SPECULA_AVX512 __attribute__((always_inline)) static __m512 weight(const Lanes& lanes,
                                                                     const float* logits) {
    const __m512 l = _mm512_loadu_ps(logits);
    return exp2(power(lanes, l), _mm512_cmp_ps_mask(l, lanes.min_logit, _CMP_NLT_UQ));
  }
  SPECULA_AVX512 __attribute__((always_inline)) static __m512 less_by(__m512 keep, __m512 w, __m512 take,
                                                                      __m512 less) {
    return max(_mm512_fmsub_ps(keep, w, _mm512_mul_ps(take, less)), _mm512_setzero_ps());
  }
  /// 2^y for y < 128; 0 below -126, and where `wanted` has no bit; NaN for NaN.
  SPECULA_AVX512 __attribute__((always_inline)) static __m512 exp2(__m512 y, __mmask16 wanted = 0xFFFF) {
    const __mmask16 kept = _mm512_mask_cmp_ps_mask(wanted, y, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    const __m512 r = _mm512_maskz_roundscale_ps(0xFFFF, y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_sub_ps(y, r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kExp2[5]), f, _mm512_set1_ps(kExp2[4]));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[3]));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[2]));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[1]));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[0]));
    return _mm512_maskz_scalef_ps(kept, p, r);
  }
  SPECULA_AVX512 __attribute__((always_inline)) static double halve(const __m512* s) {
    const __m512 a = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[4]), _mm512_add_ps(s[2], s[6])),
                                   _mm512_add_ps(_mm512_add_ps(s[1], s[5]), _mm512_add_ps(s[3], s[7])));
    const __m256 b = _mm256_add_ps(half_of<0>(a), half_of<1>(a));
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return static_cast<double>(_mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d))));
  }
};

}  // namespace specula::detail

#undef SPECULA_AVX512
#endif
