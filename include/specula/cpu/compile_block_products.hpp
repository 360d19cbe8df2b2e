// SPDX-License-Identifier: MIT
// Compiles the products of weights in blocks: some 20 s of one core. compile_decoder.hpp includes it, unless
// SPECULA_BLOCK_PRODUCTS_APART is defined: the target specula::cpu compiles it in a file of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "specula/cpu/detail/block_layout.hpp"
#include "specula/cpu/detail/block_product.hpp"
#include "specula/cpu/detail/kernels_blocks.hpp"
#include "specula/cpu/detail/kernels_blocks_amx.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rounded_inputs.hpp"
#include "specula/files/gguf_blocks.hpp"

namespace specula::cpu::detail {

template <BlockIsa>
struct BlockKernels {
  using type = blocks_portable::Kernels;
};
#if SPECULA_X86
template <>
struct BlockKernels<BlockIsa::avx2> {
  using type = blocks_avx2::Kernels;
};
template <>
struct BlockKernels<BlockIsa::avx_vnni> {
  using type = blocks_avx_vnni::Kernels;
};
template <>
struct BlockKernels<BlockIsa::avx512_vnni> {
  using type = blocks_avx512::Kernels;
};
#endif

/// The register blocks for blocks of a type.
template <BlockIsa isa, files::GgufId type, bool bytes>
struct BlockTiles {
  using Kernels = typename BlockKernels<isa>::type;
  using Ops = typename Kernels::Vector;
  static constexpr std::int32_t kColumns = block_columns(isa);

  /// N inputs.
  template <int N>
  static void run(const std::byte* a, std::ptrdiff_t panel, BlockShape shape, RoundedColumns in, float* y,
                  std::ptrdiff_t ldy) {
    constexpr int kPanels = Ops::panels(N);
    std::int32_t v = 0;
    for (; v + kPanels <= shape.panels; v += kPanels)
      Kernels::template block<type, bytes, kPanels, N>(a + v * panel, panel, shape.groups, in, y + v * kPanel,
                                                       ldy);
    if constexpr (kPanels > 1)
      for (; v < shape.panels; ++v)
        Kernels::template block<type, bytes, 1, N>(a + v * panel, panel, shape.groups, in, y + v * kPanel,
                                                   ldy);
  }

  template <int... N>
  static void run(std::int32_t columns, const std::byte* a, std::ptrdiff_t panel, BlockShape shape,
                  RoundedColumns in, float* y, std::ptrdiff_t ldy, std::integer_sequence<int, N...>) {
    using Run =
        void (*)(const std::byte*, std::ptrdiff_t, BlockShape, RoundedColumns, float*, std::ptrdiff_t);
    static constexpr Run kRun[] = {run<N + 1>...};
    kRun[columns - 1](a, panel, shape, in, y, ldy);
  }

  /// Several groups of inputs take some panels one after the other, while a cache holds these.
  static void product(const std::byte* a, BlockShape shape, const RoundedInputs& inputs, float* y,
                      std::ptrdiff_t ldy, std::int32_t columns) {
    constexpr std::ptrdiff_t kCached = 256 << 10,
                             kMultiple = 12;  // bytes; of every number of panels in a block
    const std::ptrdiff_t panel = BlockLayout(format_of(type)).panel_bytes(shape.groups);
    const auto some = static_cast<std::int32_t>(std::max(kMultiple, kCached / panel / kMultiple * kMultiple));
    const std::int32_t step = columns <= kColumns ? shape.panels : some;
    for (std::int32_t v = 0; v < shape.panels; v += step)
      for_column_groups(columns, kColumns, [&](std::int32_t first, std::int32_t n) {
        run(n, a + v * panel, panel, {std::min(step, shape.panels - v), shape.groups}, inputs.columns(first),
            y + first * ldy + v * kPanel, ldy, std::make_integer_sequence<int, kColumns>{});
      });
  }
};

template <BlockIsa isa>
void BlockProduct<isa>::run(BlockPanels a, BlockShape shape, bool bytes, const RoundedInputs& inputs,
                            float* y, std::ptrdiff_t ldy, std::int32_t columns) {
  with_format(a.type, [&]<files::GgufId type>(std::integral_constant<files::GgufId, type>) {
    if constexpr (isa == BlockIsa::amx) {
#if SPECULA_X86
      blocks_amx::product<type>(a.at, shape.panels, shape.groups, inputs, y, ldy, columns);
#endif
    } else {
      // Of wider numbers the products with 16 bits take 8 bits as well.
      constexpr bool kBytes = BlockKernels<isa>::type::Vector::kBytes && format_of(type).bits == 4;
      if (kBytes && bytes)
        BlockTiles<isa, type, kBytes>::product(a.at, shape, inputs, y, ldy, columns);
      else
        BlockTiles<isa, type, false>::product(a.at, shape, inputs, y, ldy, columns);
    }
  });
}

template struct BlockProduct<BlockIsa::portable>;
#if SPECULA_X86
template struct BlockProduct<BlockIsa::avx2>;
template struct BlockProduct<BlockIsa::avx_vnni>;
template struct BlockProduct<BlockIsa::avx512_vnni>;
template struct BlockProduct<BlockIsa::amx>;
#endif

}  // namespace specula::cpu::detail
