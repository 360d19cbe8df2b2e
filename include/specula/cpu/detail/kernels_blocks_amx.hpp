// SPDX-License-Identifier: MIT
// The product of weights in blocks with many rounded inputs, on tiles of AMX: the bits of kernels_blocks.hpp.
//
// Numbers of weights have at most 8 bits, and so has each half of an input: all are exact in bfloat16, and so
// is each sum of a group's products, which has less than 24 bits. Where it could have more, the halves are
// summed apart, and the sum of both is rounded once. A tile that was stored is then what a conversion from
// integers would give. Tiles of bytes would need two tiles of sums in any case, and storing one takes as long
// as a product of tiles.
//
// Panels are unpacked once for all inputs, some groups of columns at a time, which the L1 cache holds.
#pragma once

#include "specula/cpu/detail/amx.hpp"
#include "specula/simd/compiled.hpp"

#if SPECULA_X86

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "specula/cpu/detail/block_layout.hpp"
#include "specula/cpu/detail/kernels_blocks.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rounded_inputs.hpp"

namespace specula::cpu::detail::blocks_amx {

using Ops = blocks_avx512::Ops;

// Weights that the L1 cache holds besides a group of inputs, and inputs that the L2 cache holds.
inline constexpr std::int32_t kGroupsAtOnce = 8, kPanelsAtOnce = 2, kInputsAtOnce = 128;

/// The largest sum of absolute products of a group, or of half a group where scales are of these.
constexpr int most_of_sum(const BlockFormat& format) {
  const int number = format.zero ? format.zero : format.bits == 8 ? 128 : (1 << format.bits) - 1;
  return number * (32512 + 128) * (format.in_two ? kGroup / 2 : kGroup);
}
/// Whether the two halves of inputs are summed apart.
constexpr bool in_halves(const BlockFormat& format) { return most_of_sum(format) >= 1 << 24; }

/// Groups of some panels. A tile of weights is 16 pairs of columns of 16 rows. `scales`: of the first columns
/// of a group, or of all; and of the others, or the minimum.
struct Unpacked {
  alignas(64) std::uint16_t numbers[kPanelsAtOnce][kGroupsAtOnce][kPairs][2 * kPanel];
  alignas(64) float scales[kPanelsAtOnce][kGroupsAtOnce][2][kPanel];
};

/// bfloat16 of the integers -zero to 31 - zero, or, `upper`, of the 32 after them.
template <BlockLayout format>
[[SPECULA_AMX_TARGET, gnu::always_inline]] static inline __m512i table(int upper) {
  alignas(64) std::uint16_t out[32];
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(static_cast<float>(i + 32 * upper - format.zero)) >> 16);
  return _mm512_load_si512(out);
}
/// A pair of integers as bfloat16.
template <BlockLayout format>
[[SPECULA_AMX_TARGET, gnu::always_inline]] static inline __m512i as_bfloat16(__m512i pairs,
                                                                             const __m512i (&tables)[2]) {
  if constexpr (format.bits < 6) return _mm512_permutexvar_epi16(pairs, tables[0]);
  if constexpr (format.bits == 6) return _mm512_permutex2var_epi16(tables[0], pairs, tables[1]);
  const __m512i even = Ops::template shift_wide<16>(pairs);
  const __m512 first = Ops::to_floats(_mm512_maskz_srai_epi32(Ops::kAll, even, 16)),
               second = Ops::to_floats(_mm512_maskz_srai_epi32(Ops::kAll, pairs, 16));
  return _mm512_mask_blend_epi16(0xaaaaaaaau,
                                 _mm512_maskz_srli_epi32(Ops::kAll, _mm512_castps_si512(first), 16),
                                 _mm512_castps_si512(second));
}

template <BlockLayout format>
[[SPECULA_AMX_TARGET]] static void unpack(const std::byte* panel, std::int32_t first, int count, int own,
                                          Unpacked& to) {
  const simd::WideRegisters used;
  constexpr int more = format.bits - 4;
  const __m512i tables[] = {table<format>(0), table<format>(1)};
  for (int i = 0; i < count; ++i) {
    const std::byte *head = panel + format.group_at(first + i), *const halves =
                                                                    panel + format.halves_at(first + i);
    Ops::Floats scale = Ops::halves(halves), other{};
    if constexpr (format.minimum) other = Ops::halves(halves + 2 * kPanel);
    if constexpr (format.in_two) {
      other = Ops::times(scale, Ops::signed_bytes(head + kPanel));
      scale = Ops::times(scale, Ops::signed_bytes(head));
    } else if constexpr (format.levels) {
      scale = Ops::times(scale, Ops::bytes(head));
      other = Ops::minus_times(other, Ops::bytes(head + kPanel));
    }
    Ops::store(to.scales[own][i][0], scale);
    if constexpr (format.minimum || format.in_two) Ops::store(to.scales[own][i][1], other);
    head += format.group_head();
    SPECULA_UNROLL_LANES for (int j = 0; j < 4; ++j) {
      __m512i word[2], plane = {};
      word[0] = word[1] = Ops::load(head + 64 * (format.bits == 8 ? 2 * j : j));
      if constexpr (format.bits == 8) word[1] = Ops::load(head + 64 * (2 * j + 1));
      if constexpr (format.planes() > 0)
        plane = Ops::shift_right(Ops::load(head + 64 * (4 + (more == 1 ? 0 : j / 2))),
                                 more == 1 ? 4 * j : j % 2 * 8);
      const __m512i pairs[] = {blocks_avx512::numbers<format, 0>(word[0], plane),
                               blocks_avx512::numbers<format, 1>(word[0], plane),
                               blocks_avx512::numbers<format, 2>(word[1], plane),
                               blocks_avx512::numbers<format, 3>(word[1], plane)};
      SPECULA_UNROLL_LANES for (int f = 0; f < 4; ++f)
          _mm512_store_si512(to.numbers[own][i][4 * j + f], as_bfloat16<format>(pairs[f], tables));
    }
  }
}

/// Tiles 0, 1: sums; 4, 5: inputs; 6, 7: weights.
template <bool in_two>
[[SPECULA_AMX_TARGET]] inline void set_tiles() {
  TileShapes shapes;
  for (int tile = 0; tile < 4; ++tile) shapes.set(tile, 16, 64);
  for (int tile = 4; tile < 6; ++tile) shapes.set(tile, 16, in_two ? 32 : 64);
  for (int tile = 6; tile < 8; ++tile) shapes.set(tile, in_two ? 8 : 16, 64);
  detail::set_tiles(shapes);
}

/// A group's sums with 16 inputs: all in one; or of the halves of inputs; or of each half of the columns.
template <bool in_two, bool apart>
[[SPECULA_AMX_TARGET, gnu::always_inline]] static inline void sum_group(
    const std::uint16_t (&numbers)[kPairs][2 * kPanel], const std::uint16_t* x, float (*sums)[16][kPanel]) {
  constexpr int kRow = 2 * kGroup, kLow = kTileInputs * kGroup;
  _tile_loadd(6, numbers[0], 64);
  _tile_loadd(4, x, kRow);
  _tile_loadd(5, x + kLow, kRow);
  _tile_zero(0);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (apart) {
    _tile_zero(1);
    _tile_dpbf16ps(1, 5, 6);
  } else {
    _tile_dpbf16ps(0, 5, 6);
  }
  if constexpr (in_two) {
    _tile_loadd(7, numbers[kPairs / 2], 64);
    _tile_loadd(4, x + kGroup / 2, kRow);
    _tile_loadd(5, x + kLow + kGroup / 2, kRow);
    _tile_zero(1);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(1, 5, 7);
  }
  _tile_stored(0, sums[0], 64);
  if constexpr (in_two || apart) _tile_stored(1, sums[1], 64);
}

/// Some groups of some panels times all inputs. `more`: adds to the outputs.
template <bool minimum, bool in_two, bool apart>
[[SPECULA_AMX_TARGET]] static void multiply(const Unpacked& w, int panels, int groups, TileColumns x,
                                            std::ptrdiff_t next_inputs, float* y, std::ptrdiff_t ldy,
                                            std::int32_t columns, bool more) {
  const simd::WideRegisters used;
  constexpr int kParts = in_two || apart ? 2 : 1, kTile = 2 * kTileInputs * kGroup;
  // Tiles take long, so the sums of the next group are made while these are used.
  alignas(64) float sums[2][kParts][16][kPanel];
  int turn = 0;
  __asm__ volatile("" ::: "memory");  // tiles are loaded after all stores before
  sum_group<in_two, apart>(w.numbers[0][0], x.numbers, sums[0]);
  for (std::int32_t first = 0; first < columns; first += kTileInputs, y += kTileInputs * ldy) {
    const std::int32_t n = std::min(kTileInputs, columns - first);
    for (int p = 0; p < panels; ++p) {
      Ops::Floats out[kTileInputs];
      SPECULA_UNROLL_LANES for (int c = 0; c < kTileInputs; ++c) {
        out[c] = Ops::zero();
        if (more && c < n) out[c] = Ops::load(y + c * ldy + p * kPanel);
      }
      for (int g = 0; g < groups; ++g, turn = 1 - turn) {
        if (g + 1 < groups)
          sum_group<in_two, apart>(w.numbers[p][g + 1], x.numbers + (g + 1) * kTile, sums[1 - turn]);
        else if (p + 1 < panels)
          sum_group<in_two, apart>(w.numbers[p + 1][0], x.numbers, sums[1 - turn]);
        else if (first + kTileInputs < columns)
          sum_group<in_two, apart>(w.numbers[0][0], x.numbers + next_inputs * 2 * kGroup, sums[1 - turn]);
        const Ops::Floats scale = Ops::load(w.scales[p][g][0]), other = Ops::load(w.scales[p][g][1]);
        const auto& of = sums[turn];
        const float *const step = x.step + g * kTileInputs, *const total = x.total + g * kTileInputs;
        SPECULA_UNROLL_LANES for (int c = 0; c < kTileInputs; ++c) {
          if constexpr (minimum) out[c] = Ops::fused(other, Ops::same(total + c), out[c]);
          Ops::Floats sum = Ops::load(of[0][c]);
          if constexpr (apart) sum = _mm512_add_ps(sum, Ops::load(of[1][c]));
          out[c] = Ops::fused(sum, Ops::times(scale, Ops::same(step + c)), out[c]);
          if constexpr (in_two)
            out[c] = Ops::fused(Ops::load(of[1][c]), Ops::times(other, Ops::same(step + c)), out[c]);
        }
      }
      SPECULA_UNROLL_LANES for (int c = 0; c < kTileInputs; ++c) {
        if (c < n) Ops::store(y + c * ldy + p * kPanel, out[c]);
      }
    }
    x.numbers += next_inputs * 2 * kGroup, x.step += next_inputs, x.total += next_inputs;
  }
}

/// The product of some panels of blocks of a type.
template <files::GgufId type>
[[SPECULA_AMX_TARGET]] static void product(const std::byte* a, std::int32_t panels, std::int32_t groups,
                                           const RoundedInputs& inputs, float* y, std::ptrdiff_t ldy,
                                           std::int32_t columns) {
  constexpr BlockLayout format = format_of(type);
  const std::ptrdiff_t panel = format.panel_bytes(groups),
                       next_inputs = static_cast<std::ptrdiff_t>(groups) * kTileInputs;
  Unpacked unpacked;
  set_tiles<format.in_two>();
  for (std::int32_t c = 0; c < columns; c += kInputsAtOnce)
    for (std::int32_t v = 0; v < panels; v += kPanelsAtOnce) {
      const int some = std::min(kPanelsAtOnce, panels - v);
      for_column_groups(groups, kGroupsAtOnce, [&](std::int32_t g, std::int32_t count) {
        for (int p = 0; p < some; ++p) unpack<format>(a + (v + p) * panel, g, count, p, unpacked);
        TileColumns x = inputs.tile_columns(c);
        x.numbers += static_cast<std::ptrdiff_t>(g) * 2 * kTileInputs * kGroup;
        x.step += g * kTileInputs, x.total += g * kTileInputs;
        multiply<format.minimum, format.in_two, in_halves(format)>(
            unpacked, some, count, x, next_inputs, y + c * ldy + v * kPanel, ldy,
            std::min(kInputsAtOnce, columns - c), g > 0);
      });
    }
  _tile_release();
}

}  // namespace specula::cpu::detail::blocks_amx

#endif
