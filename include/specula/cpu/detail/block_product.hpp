// SPDX-License-Identifier: MIT
// The product of weights in blocks with any number of rounded inputs.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "specula/cpu/detail/block_format.hpp"
#include "specula/cpu/detail/kernels_blocks.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rounded_inputs.hpp"
#include "specula/simd/isa.hpp"

#if SPECULA_X86
#include <cpuid.h>
#endif

namespace specula::cpu::detail {

/// Instructions of products with integers. Those of x86 give the same bits.
enum class BlockIsa : std::uint8_t { portable, avx2, avx_vnni, avx512_vnni };

/// Whether this processor has them.
inline bool supported(BlockIsa isa) {
#if SPECULA_X86
  if (isa == BlockIsa::avx512_vnni)
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
  if (isa == BlockIsa::avx_vnni) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return specula::supported(Isa::avx2) && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1u);
  }
  if (isa == BlockIsa::avx2) return specula::supported(Isa::avx2);
#endif
  return isa == BlockIsa::portable;
}

/// The best of them for a model on `isa`. `vnni` false: without the dot products of VNNI.
inline BlockIsa block_isa(Isa isa, bool vnni = true) {
  if (isa == Isa::portable) return BlockIsa::portable;
  if (vnni && isa == Isa::avx512 && supported(BlockIsa::avx512_vnni)) return BlockIsa::avx512_vnni;
  return vnni && supported(BlockIsa::avx_vnni) ? BlockIsa::avx_vnni : BlockIsa::avx2;
}

/// Panels of weights in blocks of a type.
struct BlockPanels {
  GgufId type;
  const std::byte* at;  // the first panel
};

/// What a product with them is of: (16 panels) outputs of `groups` groups of 32 inputs.
struct BlockShape {
  std::int32_t panels, groups;
};

namespace blocks_portable {

inline constexpr std::int32_t kColumns = 8;

/// In plain C++ over Eigen's arrays of 16 rows. Sums of floats are not fused, so that their last bits differ.
inline void product(BlockPanels a, BlockShape shape, bool, const RoundedInputs& inputs, float* y, std::ptrdiff_t ldy,
                    std::int32_t columns) {
  using Ints = Eigen::Array<std::int32_t, kPanel, 1>;
  using Floats = Eigen::Array<float, kPanel, 1>;
  const BlockFormat format = format_of(a.type);
  const auto stride = format.panel_bytes(shape.groups);
  for (std::int32_t v = 0; v < shape.panels; ++v) {
    const std::byte* const panel = a.at + v * stride;
    for (std::int32_t c = 0; c < columns; ++c) Eigen::Map<Floats>(y + c * ldy + v * kPanel).setZero();
    for (std::int32_t g = 0; g < shape.groups; ++g) {
      Ints numbers[kGroup];
      Floats scales[2], minimum;
      for (int r = 0; r < kPanel; ++r) {
        BlockGroup group;
        unpack_group(format, panel, g, r, group);
        for (int k = 0; k < kGroup; ++k)
          numbers[k][r] = format.bits == 8 ? static_cast<std::int8_t>(group.numbers[k]) : group.numbers[k] - format.zero;
        const GroupScales all = scales_of(format, group);
        scales[0][r] = all.first, scales[1][r] = all.second, minimum[r] = all.minimum;
      }
      for_column_groups(columns, kColumns, [&](std::int32_t first, std::int32_t n) {
        RoundedColumns in = inputs.columns(first);
        for (std::int32_t c = 0; c < n; ++c) {
          const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(g) * n + c;
          Eigen::Map<Floats> out(y + (first + c) * ldy + v * kPanel);
          if (format.minimum) out += minimum * in.total[at];
          for (int half = 0; half < 2; ++half) {
            Ints sum = Ints::Zero();
            for (int p = half * kPairs / 2; p < (half + 1) * kPairs / 2; ++p) {
              const std::uint32_t pair = in.pairs[at * kPairs + p];
              const int k = p / 4 * 8 + p % 4;
              sum += numbers[k] * static_cast<std::int16_t>(pair & 0xffffu);
              sum += numbers[k + 4] * static_cast<std::int16_t>(pair >> 16);
            }
            out += sum.cast<float>() * (scales[half] * in.step[at]);
          }
        }
      });
    }
  }
}

}  // namespace blocks_portable

#if SPECULA_X86

/// The register blocks of one instruction set: Kernels::block().
template <class Kernels, GgufId type, bool bytes>
struct BlockTiles {
  using Ops = typename Kernels::Vector;
  static constexpr std::int32_t kColumns = Ops::kColumns;
  using Tile = void (*)(const std::byte*, std::ptrdiff_t, std::int32_t, RoundedColumns, float*, std::ptrdiff_t);

  /// `panels` panels for one group of inputs.
  template <int N>
  static void run(const std::byte* a, std::ptrdiff_t panel, BlockShape shape, RoundedColumns in, float* y,
                  std::ptrdiff_t ldy) {
    constexpr int kMost = Ops::strips(N), kStep = kMost / Ops::kStrips;
    std::int32_t v = 0;
    for (; v + kStep <= shape.panels; v += kStep)
      Kernels::template block<type, bytes, kMost, N>(a + v * panel, panel, shape.groups, in, y + v * kPanel, ldy);
    if constexpr (kStep > 1)
      for (; v < shape.panels; ++v)
        Kernels::template block<type, bytes, Ops::kStrips, N>(a + v * panel, panel, shape.groups, in, y + v * kPanel,
                                                              ldy);
  }

  template <int... N>
  static void run(std::int32_t columns, const std::byte* a, std::ptrdiff_t panel, BlockShape shape, RoundedColumns in,
                  float* y, std::ptrdiff_t ldy, std::integer_sequence<int, N...>) {
    static constexpr void (*kRun[])(const std::byte*, std::ptrdiff_t, BlockShape, RoundedColumns, float*,
                                    std::ptrdiff_t) = {run<N + 1>...};
    kRun[columns - 1](a, panel, shape, in, y, ldy);
  }

  /// Several groups of inputs take a block of weights one after the other, while a cache holds it.
  static void product(BlockPanels a, BlockShape shape, const RoundedInputs& inputs, float* y, std::ptrdiff_t ldy,
                      std::int32_t columns) {
    constexpr std::ptrdiff_t kCached = 256 << 10, kMultiple = 12;
    const std::ptrdiff_t panel = format_of(type).panel_bytes(shape.groups);
    const auto some = static_cast<std::int32_t>(std::max(kMultiple, kCached / panel / kMultiple * kMultiple));
    const std::int32_t step = columns <= kColumns ? shape.panels : some;
    for (std::int32_t v = 0; v < shape.panels; v += step)
      for_column_groups(columns, kColumns, [&](std::int32_t first, std::int32_t n) {
        run(n, a.at + v * panel, panel, {std::min(step, shape.panels - v), shape.groups}, inputs.columns(first),
            y + first * ldy + v * kPanel, ldy, std::make_integer_sequence<int, kColumns>{});
      });
  }
};

template <class Kernels>
inline void x86_product(BlockPanels a, BlockShape shape, bool bytes, const RoundedInputs& inputs, float* y,
                        std::ptrdiff_t ldy, std::int32_t columns) {
  switch (a.type) {
#define SPECULA_BLOCKS_CASE(TYPE)                                                                     \
  case GgufId::TYPE:                                                                                  \
    if constexpr (format_of(GgufId::TYPE).bits == 4)                                                  \
      if (bytes)                                                                                      \
        return BlockTiles<Kernels, GgufId::TYPE, true>::product(a, shape, inputs, y, ldy, columns);   \
    return BlockTiles<Kernels, GgufId::TYPE, false>::product(a, shape, inputs, y, ldy, columns);
    SPECULA_BLOCKS_CASE(q4_0)
    SPECULA_BLOCKS_CASE(q4_1)
    SPECULA_BLOCKS_CASE(q5_0)
    SPECULA_BLOCKS_CASE(q5_1)
    SPECULA_BLOCKS_CASE(q8_0)
    SPECULA_BLOCKS_CASE(q4_k)
    SPECULA_BLOCKS_CASE(q5_k)
    SPECULA_BLOCKS_CASE(q6_k)
#undef SPECULA_BLOCKS_CASE
    default:
      return;
  }
}
#endif

/// Inputs that one call of round() must divide by.
inline std::int32_t block_columns(BlockIsa isa) {
#if SPECULA_X86
  if (isa == BlockIsa::avx512_vnni) return blocks_avx512::Ops::kColumns;
  if (isa != BlockIsa::portable) return blocks_avx2::Ops::kColumns;
#endif
  static_cast<void>(isa);
  return blocks_portable::kColumns;
}

/// y = W x: outputs of `columns` inputs, ldy apart. `inputs` were rounded for block_columns(isa); `bytes`: to 8
/// bits.
inline void block_product(BlockIsa isa, BlockPanels a, BlockShape shape, bool bytes, const RoundedInputs& inputs,
                          float* y, std::ptrdiff_t ldy, std::int32_t columns) {
#if SPECULA_X86
  if (isa == BlockIsa::avx512_vnni)
    return x86_product<blocks_avx512::Kernels>(a, shape, bytes, inputs, y, ldy, columns);
  if (isa == BlockIsa::avx_vnni)
    return x86_product<blocks_avx_vnni::Kernels>(a, shape, bytes, inputs, y, ldy, columns);
  if (isa == BlockIsa::avx2) return x86_product<blocks_avx2::Kernels>(a, shape, bytes, inputs, y, ldy, columns);
#endif
  static_cast<void>(isa);
  blocks_portable::product(a, shape, bytes, inputs, y, ldy, columns);
}

}  // namespace specula::cpu::detail
