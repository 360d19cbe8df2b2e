// SPDX-License-Identifier: MIT
// The panel product for inputs rounded to bfloat16, on AVX512_BF16: two columns of a panel in one
// instruction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/simd/compiled.hpp"
#include "specula/simd/vectors.hpp"

#if SPECULA_X86
#include <immintrin.h>
#endif

namespace specula::cpu::detail {

/// Rounds vectors and multiplies panels with them. As in the float product an output is one chain over
/// ascending columns (here pairs of them), so its bits depend on its row and its input alone.
class Bf16Product {
 public:
  /// `streams`: the weights come from memory in each pass, since no cache holds all of them. Several inputs
  /// then read one panel after the other, as fast as one input does; from a cache, several panels at once
  /// are.
  Bf16Product(std::int32_t columns, std::int32_t depth, bool streams = false)
      : pairs_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(round_up(depth, 2 * kPanel) / 2)),
        streams_(streams) {}

  /// y = W x. Each block of weights is read once from memory; further groups of inputs read it from a cache.
  void run(Bf16Panels a, std::int32_t panels, std::int32_t depth, Columns<float> io, std::int32_t columns) {
#if SPECULA_X86
    const std::ptrdiff_t stride = round_up(depth, 2 * kPanel) / 2;
    for (std::int32_t c = 0; c < columns; ++c) round(io.x + c * io.ldx, depth, pairs_.data() + c * stride);
    using Blocks = void (*)(Bf16Panels, std::int32_t, std::int32_t, Outputs, bool);
    static constexpr Blocks kBlocks[kColumns] = {blocks<1>, blocks<2>,  blocks<3>,  blocks<4>,
                                                 blocks<5>, blocks<6>,  blocks<7>,  blocks<8>,
                                                 blocks<9>, blocks<10>, blocks<11>, blocks<12>};
    for (std::int32_t panel = 0; panel < panels; panel += kBlock) {
      const std::int32_t count = std::min(kBlock, panels - panel);
      for_column_groups(columns, kColumns, [&](std::int32_t first, std::int32_t group) {
        kBlocks[group - 1](
            {a.w + panel * a.panel, a.panel}, count, (depth + 1) / 2,
            {pairs_.data() + first * stride, stride, io.y + first * io.ldy + panel * kPanel, io.ldy},
            streams_ && columns <= kColumns);
      });
    }
#else
    static_cast<void>(a), static_cast<void>(panels), static_cast<void>(depth), static_cast<void>(io),
        static_cast<void>(columns), static_cast<void>(streams_);
#endif
  }

 private:
#if SPECULA_X86
  struct Outputs {
    const std::uint32_t* x;  // (columns, pairs), ldx apart
    std::ptrdiff_t ldx;
    float* y;
    std::ptrdiff_t ldy;
  };
  static constexpr std::int32_t kColumns = 12;  // inputs of a register block
  static constexpr std::int32_t kBlock = 12;    // panels: a multiple of every strips()
  /// Panels of a register block: 32 registers hold the sums, the weights and an input.
  static constexpr int strips(int columns) {
    return columns <= 3 ? 6 : columns <= 6 ? 4 : columns <= 8 ? 3 : 2;
  }

  /// To nearest, ties to even; subnormals to 0. Reads `depth` values and pads with zeros.
  [[gnu::target("avx512f,avx512bf16")]] static void round(const float* x, std::int32_t depth,
                                                          std::uint32_t* out) {
    const simd::WideRegisters used;
    const auto lanes = [](std::int32_t left) {
      return static_cast<__mmask16>(left >= kPanel ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
    };
    for (std::int32_t k = 0; k < depth; k += 2 * kPanel) {
      const __mmask16 low = lanes(depth - k), high = lanes(depth - k - kPanel);
      const __m512bh both =
          _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, x + k + kPanel), _mm512_maskz_loadu_ps(low, x + k));
      _mm512_storeu_si512(out + k / 2, reinterpret_cast<__m512i>(both));
    }
  }

  template <int N>
  static void blocks(Bf16Panels a, std::int32_t panels, std::int32_t pairs, Outputs to, bool streams) {
    if (!streams || N == 1) {
      for (; panels >= strips(N); panels -= strips(N)) next<strips(N), N>(a, pairs, to);
      for (; panels >= 2; panels -= 2) next<2, N>(a, pairs, to);
    }
    for (; panels > 0; --panels) next<1, N>(a, pairs, to);
  }
  template <int S, int N>
  static void next(Bf16Panels& a, std::int32_t pairs, Outputs& to) {
    block<S, N>(a, pairs, to);
    a.w += S * a.panel;
    to.y += S * kPanel;
  }

  template <int S, int N>
  [[gnu::target("avx512f,avx512bf16")]] static void block(Bf16Panels a, std::int32_t pairs, Outputs to) {
    const simd::WideRegisters used;
    __m512 sum[S][N];
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) sum[s][c] = _mm512_setzero_ps();
    }
    for (std::ptrdiff_t k = 0; k < pairs; ++k) {
      __m512i w[S];
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
        const std::uint32_t* at = a.w + s * a.panel + k * kPanel;
        // Prefetches the next block into the L2 cache during this one's arithmetic; for a single input the
        // hardware's own prefetch is as fast.
        if constexpr (N > 1) _mm_prefetch(reinterpret_cast<const char*>(at + S * a.panel), _MM_HINT_T1);
        w[s] = _mm512_loadu_si512(at);
        __asm__("" : "+v"(w[s]));  // else g++ loads it again for every column, and loads limit few columns
      }
      SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) {
        const __m512i same = _mm512_set1_epi32(static_cast<int>(to.x[c * to.ldx + k]));
        SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) sum[s][c] =
            _mm512_dpbf16_ps(sum[s][c], reinterpret_cast<__m512bh>(w[s]), reinterpret_cast<__m512bh>(same));
      }
    }
    SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
      SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c)
          _mm512_storeu_ps(to.y + c * to.ldy + s * kPanel, sum[s][c]);
    }
  }
#endif

  AlignedVector<std::uint32_t> pairs_;  // (columns, depth / 2, padded): the rounded inputs
  bool streams_;
};

}  // namespace specula::cpu::detail
