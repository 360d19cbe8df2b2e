// SPDX-License-Identifier: MIT
// The panel product on AVX2 with FMA: two registers hold the 16 rows of a panel.
#pragma once

#include "specula/simd/compiled.hpp"
#include "specula/simd/vectors.hpp"

#if SPECULA_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "specula/cpu/detail/panel.hpp"

namespace specula::cpu::detail::avx2 {

struct Tiles {
  static constexpr std::int32_t kLanes = 8;
  /// Strips of 8 rows in a register block: 16 registers hold the sums, the weights and an input. At least 8
  /// independent sums if the registers suffice, since 8 FMAs start within the latency of one.
  static constexpr std::int32_t kColumns = 6;
  static constexpr int strips(int columns) { return columns == 1 ? 8 : columns == 2 ? 4 : 2; }

  template <int S, int N>
  [[gnu::target("avx2,fma"), gnu::always_inline]] static void load(__m256 (&sum)[S][N],
                                                                   const Columns<float>& io,
                                                                   bool accumulate) {
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) sum[s][c] =
          accumulate ? _mm256_loadu_ps(io.y + c * io.ldy + s * kLanes) : _mm256_setzero_ps();
    }
  }
  template <int S, int N>
  [[gnu::target("avx2,fma"), gnu::always_inline]] static void store(const __m256 (&sum)[S][N],
                                                                    const Columns<float>& io) {
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c)
          _mm256_storeu_ps(io.y + c * io.ldy + s * kLanes, sum[s][c]);
    }
  }
  template <int S, int N>
  [[gnu::target("avx2,fma"), gnu::always_inline]] static void step(__m256 (&sum)[S][N], const __m256 (&w)[S],
                                                                   const float* x, std::ptrdiff_t ldx) {
    SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) {
      const __m256 same = _mm256_set1_ps(x[c * ldx]);
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) sum[s][c] = _mm256_fmadd_ps(w[s], same, sum[s][c]);
    }
  }

  [[gnu::target("avx2,fma"), gnu::always_inline]] static inline __m256i pairs(const Bf16Panels& a,
                                                                              std::ptrdiff_t k, int s) {
    const std::uint32_t* at = a.w + (s / 2) * a.panel + k * (kPanel / 2) + (s % 2) * kLanes;
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  [[gnu::target("avx2,fma"), gnu::always_inline]] static inline __m256 low_half(__m256i pair) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
  }
  [[gnu::target("avx2,fma"), gnu::always_inline]] static inline __m256 high_half(__m256i pair) {
    return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  /// Prefetches what the next register block will read at offset `at`, so that memory access overlaps with
  /// this block's arithmetic. The next matrix lies after this one.
  template <int S, class Panels>
  [[gnu::target("avx2,fma"), gnu::always_inline]] static inline void prefetch(const Panels& a,
                                                                              std::ptrdiff_t at) {
    SPECULA_UNROLL_LANES for (int p = S / 2; p < 2 * (S / 2); ++p)
        _mm_prefetch(reinterpret_cast<const char*>(a.w + p * a.panel + at), _MM_HINT_T1);
  }

  template <int S, int N>
  [[gnu::target("avx2,fma")]] static void run(Bf16Panels a, std::int32_t depth, Columns<float> io,
                                              bool accumulate) {
    const simd::WideRegisters used;
    __m256 sum[S][N];
    load<S, N>(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; k += 2) {
      const bool both = k + 1 < depth;
      if constexpr (N > 1) prefetch<S>(a, k * (kPanel / 2));  // one input: hardware prefetch is as fast
      if constexpr (N <= 2) {  // strip by strip: 4 strips' halves and their sums would not fit 16 registers
        __m256 x[2][N];
        SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) {
          x[0][c] = _mm256_broadcast_ss(io.x + c * io.ldx + k);
          x[1][c] = both ? _mm256_broadcast_ss(io.x + c * io.ldx + k + 1)
                         : _mm256_setzero_ps();  // the weight is 0, too
        }
        SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
          const __m256i pair = pairs(a, k, s);
          const __m256 low = low_half(pair), high = high_half(pair);
          SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) sum[s][c] =
              _mm256_fmadd_ps(low, x[0][c], sum[s][c]);
          SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) sum[s][c] =
              _mm256_fmadd_ps(high, x[1][c], sum[s][c]);
        }
      } else {  // the pairs are loaded again for their high halves: 12 sums leave no registers to keep them
        __m256 w[S];
        SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) w[s] = low_half(pairs(a, k, s));
        step<S, N>(sum, w, io.x + k, io.ldx);
        if (!both) break;
        if constexpr (S * N > 10) __asm__ volatile("" ::: "memory");  // else g++ keeps them and spills sums
        SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) w[s] = high_half(pairs(a, k, s));
        step<S, N>(sum, w, io.x + k + 1, io.ldx);
      }
    }
    store<S, N>(sum, io);
  }

  /// Where strip s of column k begins.
  [[gnu::always_inline]] static inline const __m128i* halves(const HalfPanels& a, std::ptrdiff_t k, int s) {
    const std::uint16_t* at = a.w + (s / 2) * a.panel + k * kPanel + (s % 2) * kLanes;
    return reinterpret_cast<const __m128i*>(at);
  }

  /// The first columns of a panel as floats.
  [[gnu::target("avx2,fma,f16c")]] static void expand(HalfPanels a, std::int32_t count, float* out) {
    const simd::WideRegisters used;
    for (std::ptrdiff_t k = 0; k < count; ++k) {
      SPECULA_UNROLL_LANES for (int s = 0; s < 2; ++s)
          _mm256_storeu_ps(out + k * kPanel + s * kLanes, _mm256_cvtph_ps(_mm_loadu_si128(halves(a, k, s))));
    }
  }

  template <int S, int N>
  [[gnu::target("avx2,fma,f16c")]] static void run(HalfPanels a, std::int32_t depth, Columns<float> io,
                                                   bool accumulate) {
    const simd::WideRegisters used;
    __m256 sum[S][N], w[S];
    load<S, N>(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; ++k) {
      if constexpr (N > 1) prefetch<S>(a, k * kPanel);
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) w[s] =
          _mm256_cvtph_ps(_mm_loadu_si128(halves(a, k, s)));
      step<S, N>(sum, w, io.x + k, io.ldx);
    }
    store<S, N>(sum, io);
  }

  template <int S, int N>
  [[gnu::target("avx2,fma")]] static void run(RealPanels<float> a, std::int32_t depth, Columns<float> io,
                                              bool accumulate) {
    const simd::WideRegisters used;
    __m256 sum[S][N], w[S];
    load<S, N>(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; ++k) {
      prefetch<S>(a, k * a.column);
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) w[s] =
          _mm256_loadu_ps(a.w + (s / 2) * a.panel + k * a.column + (s % 2) * kLanes);
      step<S, N>(sum, w, io.x + k, io.ldx);
    }
    store<S, N>(sum, io);
  }
};

}  // namespace specula::cpu::detail::avx2

#endif
