// SPDX-License-Identifier: MIT
// The panel product on AVX-512: a register holds the 16 rows of a panel.
#pragma once

#include "specula/simd/compiled.hpp"
#include "specula/simd/vectors.hpp"

#if SPECULA_X86

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "specula/cpu/detail/panel.hpp"

namespace specula::cpu::detail::avx512 {

struct Tiles {
  static constexpr std::int32_t kLanes = 16;
  static constexpr __mmask16 kAll =
      0xffff;  // the unmasked shift warns of an uninitialised variable in g++ 12
  /// A register block is 4 strips of 16 rows times up to 6 inputs: 32 registers hold the sums, the weights
  /// and an input.
  static constexpr std::int32_t kColumns = 6;
  static constexpr int strips(int) { return 4; }

  template <int S, int N>
  [[gnu::target("avx512f"), gnu::always_inline]] static void load(__m512 (&sum)[S][N],
                                                                  const Columns<float>& io, bool accumulate) {
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) sum[s][c] =
          accumulate ? _mm512_loadu_ps(io.y + c * io.ldy + s * kLanes) : _mm512_setzero_ps();
    }
  }
  template <int S, int N>
  [[gnu::target("avx512f"), gnu::always_inline]] static void store(const __m512 (&sum)[S][N],
                                                                   const Columns<float>& io) {
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c)
          _mm512_storeu_ps(io.y + c * io.ldy + s * kLanes, sum[s][c]);
    }
  }
  template <int S, int N>
  [[gnu::target("avx512f"), gnu::always_inline]] static void step(__m512 (&sum)[S][N], const __m512 (&w)[S],
                                                                  const float* x, std::ptrdiff_t ldx) {
    SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) {
      const __m512 same = _mm512_set1_ps(x[c * ldx]);
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) sum[s][c] = _mm512_fmadd_ps(w[s], same, sum[s][c]);
    }
  }

  template <int S, int N>
  [[gnu::target("avx512f")]] static void run(Bf16Panels a, std::int32_t depth, Columns<float> io,
                                             bool accumulate) {
    const simd::WideRegisters used;
    __m512 sum[S][N], low[S], high[S];
    load<S, N>(sum, io, accumulate);
    const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (std::ptrdiff_t k = 0; k < depth; k += 2) {
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
        const std::uint32_t* at = a.w + s * a.panel + k * (kPanel / 2);
        // Prefetch pays for several inputs only; for a single one the hardware's own prefetch is as fast.
        if constexpr (N > 1) _mm_prefetch(reinterpret_cast<const char*>(at + S * a.panel), _MM_HINT_T1);
        const __m512i pair = _mm512_loadu_si512(at);
        low[s] = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, pair, 16));
        high[s] = _mm512_castsi512_ps(_mm512_and_si512(pair, high_half));
      }
      step<S, N>(sum, low, io.x + k, io.ldx);
      if (k + 1 < depth) step<S, N>(sum, high, io.x + k + 1, io.ldx);
    }
    store<S, N>(sum, io);
  }

  /// Column k of strip s, converted.
  [[gnu::target("avx512f"), gnu::always_inline]] static inline __m512 halves(const HalfPanels& a,
                                                                             std::ptrdiff_t k, int s) {
    const std::uint16_t* at = a.w + s * a.panel + k * kPanel;
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }

  /// The first columns of a panel as floats.
  [[gnu::target("avx512f")]] static void expand(HalfPanels a, std::int32_t count, float* out) {
    const simd::WideRegisters used;
    for (std::ptrdiff_t k = 0; k < count; ++k) _mm512_storeu_ps(out + k * kPanel, halves(a, k, 0));
  }

  template <int S, int N>
  [[gnu::target("avx512f")]] static void run(HalfPanels a, std::int32_t depth, Columns<float> io,
                                             bool accumulate) {
    const simd::WideRegisters used;
    __m512 sum[S][N], w[S];
    load<S, N>(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; ++k) {
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
        if constexpr (N > 1)
          _mm_prefetch(reinterpret_cast<const char*>(a.w + (s + S) * a.panel + k * kPanel), _MM_HINT_T1);
        w[s] = halves(a, k, s);
      }
      step<S, N>(sum, w, io.x + k, io.ldx);
    }
    store<S, N>(sum, io);
  }

  template <int S, int N>
  [[gnu::target("avx512f")]] static void run(RealPanels<float> a, std::int32_t depth, Columns<float> io,
                                             bool accumulate) {
    const simd::WideRegisters used;
    __m512 sum[S][N], w[S];
    load<S, N>(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; ++k) {
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) w[s] =
          _mm512_loadu_ps(a.w + s * a.panel + k * a.column);
      step<S, N>(sum, w, io.x + k, io.ldx);
    }
    store<S, N>(sum, io);
  }
};

}  // namespace specula::cpu::detail::avx512

#endif
