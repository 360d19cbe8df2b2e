// Tile kernels for AVX2 with FMA. The same operations in the same order as the AVX-512 ones: the same bits.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#include <cmath>
#include <limits>

#include "specula/distribution/row_kernels.hpp"

#define SPECULA_AVX2 __attribute__((target("avx2,fma")))

namespace specula::detail {

struct Avx2Kernels {
  SPECULA_AVX2 static float maximum(const float* logits) {
    // maxps returns its second operand where either is NaN, so NaN needs a test of its own.
    __m256 best[4] = {_mm256_loadu_ps(logits), _mm256_loadu_ps(logits + 8), _mm256_loadu_ps(logits + 16),
                      _mm256_loadu_ps(logits + 24)};
    __m256 nan = _mm256_or_ps(_mm256_cmp_ps(best[0], best[1], _CMP_UNORD_Q),
                              _mm256_cmp_ps(best[2], best[3], _CMP_UNORD_Q));
    for (std::int32_t i = 32; i < kTile; i += 32) {
      const __m256 a = _mm256_loadu_ps(logits + i), b = _mm256_loadu_ps(logits + i + 8);
      const __m256 c = _mm256_loadu_ps(logits + i + 16), d = _mm256_loadu_ps(logits + i + 24);
      nan = _mm256_or_ps(nan,
                         _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), _mm256_cmp_ps(c, d, _CMP_UNORD_Q)));
      best[0] = _mm256_max_ps(best[0], a);
      best[1] = _mm256_max_ps(best[1], b);
      best[2] = _mm256_max_ps(best[2], c);
      best[3] = _mm256_max_ps(best[3], d);
    }
    const __m256 top = _mm256_max_ps(_mm256_max_ps(best[0], best[1]), _mm256_max_ps(best[2], best[3]));
    return _mm256_movemask_ps(nan) ? std::numeric_limits<float>::quiet_NaN() : reduce_max(top);
  }

  SPECULA_AVX2 static void stats(const float* logits, std::int32_t tiles, double inv_t, TileStats* out) {
    const float factor = static_cast<float>(inv_t * kLog2E);
    const __m256 scale = _mm256_set1_ps(factor);
    float top = maximum(logits);
    for (std::int32_t t = 0; t < tiles; ++t, logits += kTile) {
      // The maximum of the next tile is computed on the way: its loads overlap with this tile's arithmetic.
      const float* next = t + 1 < tiles ? logits + kTile : logits;
      out[t] = tile_unit(top, factor);
      // Where the unit is exact in a float, so is the fused product, which saves the subtraction.
      const bool large = std::abs(out[t].unit) >= 0x1p22;
      const Lanes lanes{_mm256_set1_ps(large ? top : 0), scale,
                        _mm256_set1_ps(large ? -out[t].rest : static_cast<float>(out[t].unit)),
                        _mm256_setzero_ps()};
      __m256 sums[16];
      const float ahead =
          large ? columns<true>(lanes, logits, next, sums) : columns<false>(lanes, logits, next, sums);
      out[t].sum = top == -std::numeric_limits<float>::infinity() ? empty(logits) : halve(sums);
      top = ahead;
    }
  }

  SPECULA_AVX2 static double fill(const float* logits, const Exponent& e, float* weights) {
    const Lanes lanes = lanes_of(e);
    __m256 sums[16] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 16
      for (std::int32_t j = 0; j < 16; ++j) {
        const __m256 w = weight(lanes, logits + row + 8 * j);
        _mm256_storeu_ps(weights + row + 8 * j, w);
        sums[j] = _mm256_add_ps(sums[j], w);
      }
    return halve(sums);
  }

  SPECULA_AVX2 static double subtract(float* weights, const float* less, float keep, float take) {
    const __m256 a = _mm256_set1_ps(keep), b = _mm256_set1_ps(take);
    __m256 sums[16] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 16
      for (std::int32_t j = 0; j < 16; ++j) {
        float* at = weights + row + 8 * j;
        const __m256 w = less_by(a, _mm256_loadu_ps(at), b, _mm256_loadu_ps(less + row + 8 * j));
        _mm256_storeu_ps(at, w);
        sums[j] = _mm256_add_ps(sums[j], w);
      }
    return halve(sums);
  }

  SPECULA_AVX2 static double difference(const float* logits, const Exponent& e, const float* less,
                                        const Exponent& f, float keep, float take) {
    const Lanes lanes = lanes_of(e), other = lanes_of(f);
    const __m256 a = _mm256_set1_ps(keep), b = _mm256_set1_ps(take);
    __m256 sums[16] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 16
      for (std::int32_t j = 0; j < 16; ++j) {
        const std::int32_t i = row + 8 * j;
        sums[j] = _mm256_add_ps(sums[j], less_by(a, weight(lanes, logits + i), b, weight(other, less + i)));
      }
    return halve(sums);
  }

  SPECULA_AVX2 static double cross(const float* target, const Exponent& e, const float* draft,
                                   const Exponent& f, float keep, float take, float* out) {
    const Lanes lanes = lanes_of(e), other = lanes_of(f);
    const __m256 a = _mm256_set1_ps(keep), b = _mm256_set1_ps(take), zero = _mm256_setzero_ps();
    __m256 sums[16] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
#pragma GCC unroll 16
      for (std::int32_t j = 0; j < 16; ++j) {
        const std::int32_t i = row + 8 * j;
        const __m256 log_q = power(other, _mm256_loadu_ps(draft + i));
        const __m256 p = exp2(power(lanes, _mm256_loadu_ps(target + i)));
        _mm256_storeu_ps(out + i, _mm256_fmsub_ps(a, exp2(log_q), _mm256_mul_ps(b, p)));
        const __m256 any = _mm256_cmp_ps(p, zero, _CMP_NEQ_UQ);
        sums[j] = _mm256_add_ps(sums[j], _mm256_and_ps(any, _mm256_mul_ps(p, log_q)));
      }
    return halve(sums);
  }

  SPECULA_AVX2 static std::int32_t above(const float* logits, float bound, std::int32_t* places) {
    const __m256 limit = _mm256_set1_ps(bound);
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < kTile; i += 32) {
      std::uint32_t mask = 0;
      for (std::int32_t j = 0; j < 32; j += 8)
        mask |= static_cast<std::uint32_t>(
                    _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(logits + i + j), limit, _CMP_GT_OQ)))
                << j;
      for (; mask != 0; mask &= mask - 1) places[count++] = i + __builtin_ctz(mask);
    }
    return count;
  }

  static constexpr RowKernels table() { return {maximum, stats, fill, subtract, difference, cross, above}; }

 private:
  /// The sum of a tile whose maximum is -infinity: 0, or NaN if it holds one, which maxps misses.
  SPECULA_AVX2 static double empty(const float* logits) {
    return std::isnan(maximum(logits)) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  }
  SPECULA_AVX2 __attribute__((always_inline)) static float reduce_max(__m256 a) {
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }
  struct Lanes {
    __m256 shift, scale, offset, min_logit;
  };
  SPECULA_AVX2 static Lanes lanes_of(const Exponent& e) {
    return {_mm256_set1_ps(e.shift), _mm256_set1_ps(e.scale), _mm256_set1_ps(e.offset),
            _mm256_set1_ps(e.min_logit)};
  }
  /// log2 of a weight, ignoring truncation.
  SPECULA_AVX2 __attribute__((always_inline)) static __m256 power(const Lanes& lanes, __m256 l) {
    return _mm256_fmsub_ps(_mm256_sub_ps(l, lanes.shift), lanes.scale, lanes.offset);
  }
  /// Sums of a tile's columns; returns the maximum of `next`.
  template <bool large>
  SPECULA_AVX2 __attribute__((always_inline)) static float columns(const Lanes& lanes, const float* logits,
                                                                   const float* next, __m256* sums) {
    __m256 best = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
    for (std::int32_t j = 0; j < 16; ++j) {
      const std::int32_t column = 8 * j;
      __m256 sum = exp2(above_unit<large>(lanes, logits + column));
      sum = _mm256_add_ps(sum, exp2(above_unit<large>(lanes, logits + column + 128)));
      sum = _mm256_add_ps(sum, exp2(above_unit<large>(lanes, logits + column + 256)));
      sums[j] = _mm256_add_ps(sum, exp2(above_unit<large>(lanes, logits + column + 384)));
      const float* ahead = next + 4 * column;  // in order, for the hardware prefetcher
      const __m256 a = _mm256_max_ps(_mm256_loadu_ps(ahead), _mm256_loadu_ps(ahead + 8));
      const __m256 b = _mm256_max_ps(_mm256_loadu_ps(ahead + 16), _mm256_loadu_ps(ahead + 24));
      best = _mm256_max_ps(best, _mm256_max_ps(a, b));
    }
    return reduce_max(best);
  }
  /// Exponents of logits relative to the tile's unit.
  template <bool large>
  SPECULA_AVX2 __attribute__((always_inline)) static __m256 above_unit(const Lanes& lanes,
                                                                       const float* logits) {
    const __m256 l = _mm256_loadu_ps(logits);
    return large ? power(lanes, l) : _mm256_fmsub_ps(l, lanes.scale, lanes.offset);
  }
  SPECULA_AVX2 __attribute__((always_inline)) static __m256 weight(const Lanes& lanes, const float* logits) {
    const __m256 l = _mm256_loadu_ps(logits);
    const __m256 kept = _mm256_cmp_ps(l, lanes.min_logit, _CMP_NLT_UQ);
    return _mm256_and_ps(kept, exp2(power(lanes, l)));
  }
  SPECULA_AVX2 __attribute__((always_inline)) static __m256 less_by(__m256 keep, __m256 w, __m256 take,
                                                                    __m256 less) {
    return _mm256_max_ps(_mm256_fmsub_ps(keep, w, _mm256_mul_ps(take, less)), _mm256_setzero_ps());
  }
  /// 2^y for y < 128; 0 below -126; NaN for NaN.
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
    // NaN converts to 0x80000000, which is shifted out: p, also NaN, is unchanged.
    return _mm256_and_ps(kept, _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shifted)));
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
