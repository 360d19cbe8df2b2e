// SPDX-License-Identifier: MIT
// Inputs of products with weights in blocks, rounded to integers: a step for each group of 32 columns, 16 or
// 8 bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "specula/cpu/detail/aligned.hpp"
#include "specula/cpu/detail/block_layout.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/simd/compiled.hpp"
#include "specula/simd/isa.hpp"
#include "specula/simd/vectors.hpp"

#if SPECULA_X86
#include <immintrin.h>
#endif

namespace specula::cpu::detail {

/// Some inputs that a product takes at once: group by group, in each all inputs side by side.
struct RoundedColumns {
  const std::uint32_t* pairs;  // (groups, n, 16): pair p of a group, 16 bits each
  const std::uint32_t* bytes;  // (groups, n, 8): columns 8 j + f + {0, 2, 4, 6}, at 2 j + f; of 8 bits
  const float* step;           // (groups, n)
  const float* total;          // (groups, n): step times the sum of a group's integers
  const std::int32_t* minus;   // (groups, 3, n): the negative sum of the integers, and of each half of them
};

inline constexpr std::int32_t kTileInputs = 16;  // rows of a tile

/// The same for tiles of AMX: 16 inputs, or fewer and zeros. An integer is 256 h + l, with l from -128 to
/// 127: two numbers of 8 bits, which bfloat16 has exactly.
struct TileColumns {
  const std::uint16_t* numbers;  // (groups, 2, 16, 32): 256 h of all columns in the order of pairs, then l
  const float *step, *total;     // (groups, 16)
};

/// A value is the nearest multiple, ties to even, of its group's step, which is the largest value over 32512
/// (of 8 bits, 127). The bits are the same on every instruction set. A group with infinity or NaN has a step
/// of NaN, which reaches every output; one below 2^-110 counts as zeros.
class RoundedInputs {
 public:
  RoundedInputs() = default;
  /// Room for `columns` inputs of `depth` values; with `tiles` for round_to_tiles() as well.
  RoundedInputs(std::int32_t columns, std::int32_t depth, bool tiles = false) {
    const std::size_t all = static_cast<std::size_t>(tiles ? round_up(columns, kTileInputs) : columns) *
                            static_cast<std::size_t>(round_up(depth, kGroup) / kGroup);
    if (tiles) tiles_.resize(all * 2 * kGroup);
    pairs_.resize(all * kPairs);
    bytes_.resize(all * kPairs / 2);
    step_.resize(all), total_.resize(all);
    minus_.resize(all * 3);
  }

  /// Rounds `columns` inputs of `depth` values, ldx apart, for products that take up to `most` at once, as
  /// for_column_groups() divides them.
  void round(Isa isa, bool to_bytes, const float* x, std::ptrdiff_t ldx, std::int32_t depth,
             std::int32_t columns, std::int32_t most) {
    groups_ = round_up(depth, kGroup) / kGroup;
    for_column_groups(columns, most, [&](std::int32_t first, std::int32_t n) {
      for (std::int32_t c = 0; c < n; ++c)
        for (std::int32_t g = 0; g < groups_; ++g) {
          const std::size_t at = place(first, g, n, c);
          std::int32_t sums[2];
          round_group(isa, x + (first + c) * ldx, g, depth, to_bytes ? 127.0f : 32512.0f, at,
                      pairs_.data() + at * kPairs, sums);
          std::int32_t* const minus = minus_.data() + (at - static_cast<std::size_t>(c)) * 3 + c;
          minus[0] = -(sums[0] + sums[1]), minus[n] = -sums[0], minus[2 * n] = -sums[1];
          if (to_bytes) as_bytes(pairs_.data() + at * kPairs, bytes_.data() + at * kPairs / 2);
        }
    });
  }

#if SPECULA_X86
  /// Rounds them to 16 bits for tiles, 16 inputs after the other.
  void round_to_tiles(const float* x, std::ptrdiff_t ldx, std::int32_t depth, std::int32_t columns) {
    groups_ = round_up(depth, kGroup) / kGroup;
    for (std::int32_t i = 0; i < round_up(columns, kTileInputs); ++i)
      for (std::int32_t g = 0; g < groups_; ++g) {
        const std::int32_t c = i % kTileInputs;
        const std::size_t at = place(i - c, g, kTileInputs, c);
        std::uint32_t pairs[kPairs] = {};
        std::int32_t sums[2];
        if (i < columns)
          round_group(Isa::avx2, x + i * ldx, g, depth, 32512.0f, at, pairs, sums);
        else
          step_[at] = total_[at] = 0;
        as_tile_rows(pairs, tiles_.data() + (at * 2 - static_cast<std::size_t>(c)) * kGroup);
      }
  }
#endif

  /// Those from `first` on, which for_column_groups() gave.
  RoundedColumns columns(std::int32_t first) const {
    const std::size_t at = place(first, 0, 0, 0);
    return {pairs_.data() + at * kPairs, bytes_.data() + at * kPairs / 2, step_.data() + at,
            total_.data() + at, minus_.data() + at * 3};
  }
  /// Those from `first` on, a multiple of 16.
  TileColumns tile_columns(std::int32_t first) const {
    const std::size_t at = place(first, 0, 0, 0);
    return {tiles_.data() + at * 2 * kGroup, step_.data() + at, total_.data() + at};
  }

 private:
  /// Where group `g` of input `first` + `c` is, of `n` inputs side by side.
  std::size_t place(std::int32_t first, std::int32_t g, std::int32_t n, std::int32_t c) const {
    return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(first) * groups_ +
                                    static_cast<std::ptrdiff_t>(g) * n + c);
  }
  /// Group `g` of the input `x`: writes its pairs, the sums of its halves, and, at `at`, step and total.
  void round_group(Isa isa, const float* x, std::int32_t g, std::int32_t depth, float top, std::size_t at,
                   std::uint32_t* pairs, std::int32_t* sums) {
    x += static_cast<std::ptrdiff_t>(g) * kGroup;
    float padded[kGroup];
    if (const std::int32_t left = depth - g * kGroup; left < kGroup) {
      std::fill(std::copy_n(x, left, padded), padded + kGroup, 0.0f);
      x = padded;
    }
    step_[at] = round_group(isa, x, top, pairs, sums);
    total_[at] = step_[at] * static_cast<float>(sums[0] + sums[1]);
  }
  /// One group: writes its pairs and the sums of its halves; returns the step.
  static float round_group(Isa isa, const float* x, float top, std::uint32_t* pairs, std::int32_t* sums) {
#if SPECULA_X86
    if (isa != Isa::portable) return avx2(x, top, pairs, sums);
#endif
    static_cast<void>(isa);
    std::int32_t largest = 0;  // of the bits, so that NaN is the largest of all
    for (int i = 0; i < kGroup; ++i)
      largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
    const Step step = step_of(largest, top);
    std::int32_t rounded[kGroup];
    for (int i = 0; i < kGroup; ++i)
      rounded[i] = step.inverse > 0 ? static_cast<std::int32_t>(std::nearbyint(x[i] * step.inverse)) : 0;
    sums[0] = sums[1] = 0;
    for (int i = 0; i < kGroup; ++i) sums[i / (kGroup / 2)] += rounded[i];
    for (int p = 0; p < kPairs; ++p) {
      const std::int32_t* const first = rounded + p / 4 * 8 + p % 4;
      pairs[p] = (static_cast<std::uint32_t>(first[0]) & 0xffffu) | static_cast<std::uint32_t>(first[4])
                                                                        << 16;
    }
    return step.value;
  }

  struct Step {
    float value, inverse;  // inverse 0: all integers are 0
  };
  static Step step_of(std::int32_t largest_bits, float top) {
    if (largest_bits >= 0x7f800000) return {std::numeric_limits<float>::quiet_NaN(), 0};
    const float largest = std::bit_cast<float>(largest_bits);
    if (largest < 0x1p-110f) return {0, 0};  // the inverse could be infinite
    return {largest / top, top / largest};
  }

#if SPECULA_X86
  [[gnu::target("avx2,fma")]] static float avx2(const float* x, float top, std::uint32_t* pairs,
                                                std::int32_t* sums) {
    const simd::WideRegisters used;
    __m256i largest = _mm256_setzero_si256(), values[4], rounded[4];
    SPECULA_UNROLL_LANES for (int j = 0; j < 4; ++j) {
      values[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * j));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(values[j], _mm256_set1_epi32(0x7fffffff)));
    }
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    const Step step = step_of(_mm_cvtsi128_si32(most), top);
    const __m256 inverse = _mm256_set1_ps(step.inverse);
    const __m256i zeros = _mm256_set1_epi32(step.inverse > 0 ? -1 : 0);
    SPECULA_UNROLL_LANES for (int j = 0; j < 4; ++j) {
      rounded[j] =
          _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(values[j]), inverse)), zeros);
      const __m128i first = _mm256_castsi256_si128(rounded[j]),
                    second = _mm256_extracti128_si256(rounded[j], 1);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(pairs + 4 * j),
                       _mm_blend_epi16(first, _mm_slli_epi32(second, 16), 0xaa));
    }
    SPECULA_UNROLL_LANES for (int half = 0; half < 2; ++half) {
      const __m256i both = _mm256_add_epi32(rounded[2 * half], rounded[2 * half + 1]);
      __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
      sums[half] = _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
    }
    return step.value;
  }

  /// A row of a tile, of a group's 256 h, and the one of l, 16 rows after it.
  [[gnu::target("avx2,fma")]] static void as_tile_rows(const std::uint32_t* pairs, std::uint16_t* row) {
    for (int i = 0; i < kPairs; i += 8) {
      const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pairs + i)),
                    high = _mm256_and_si256(_mm256_add_epi16(both, _mm256_set1_epi16(128)),
                                            _mm256_set1_epi16(-256));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 2 * i), as_bfloat16(high));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + kTileInputs * kGroup + 2 * i),
                          as_bfloat16(_mm256_sub_epi16(both, high)));
    }
  }
  /// 16-bit integers of at most 8 significant bits.
  [[gnu::target("avx2,fma"), gnu::always_inline]] static inline __m256i as_bfloat16(__m256i pairs) {
    const __m256 even = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16)),
                 odd = _mm256_cvtepi32_ps(_mm256_srai_epi32(pairs, 16));
    return _mm256_blend_epi16(_mm256_srli_epi32(_mm256_castps_si256(even), 16), _mm256_castps_si256(odd),
                              0xaa);
  }
#endif

  /// Bytes of 4 columns in one word, as nibbles lie: of word j first the even nibbles, then the odd ones.
  static void as_bytes(const std::uint32_t* pairs, std::uint32_t* bytes) {
    for (int j = 0; j < 4; ++j)
      for (int f = 0; f < 2; ++f) {
        const std::uint32_t even = pairs[4 * j + f],
                            odd = pairs[4 * j + f + 2];  // columns f, f + 4; f + 2, f + 6
        bytes[2 * j + f] =
            (even & 0xffu) | (odd & 0xffu) << 8 | (even >> 16 & 0xffu) << 16 | (odd >> 16 & 0xffu) << 24;
      }
  }

  std::int32_t groups_ = 0;
  AlignedVector<std::uint32_t> pairs_, bytes_;
  AlignedVector<std::uint16_t> tiles_;
  AlignedVector<float> step_, total_;
  AlignedVector<std::int32_t> minus_;
};

}  // namespace specula::cpu::detail
