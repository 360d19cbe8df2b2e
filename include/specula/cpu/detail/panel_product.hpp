// SPDX-License-Identifier: MIT
// The panel product over any number of panels and inputs: chooses the register block, and the instruction set
// at run time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "specula/cpu/detail/kernels_avx2.hpp"
#include "specula/cpu/detail/kernels_avx512.hpp"
#include "specula/cpu/detail/kernels_portable.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/simd/isa.hpp"

namespace specula::cpu::detail {

/// One register block: S strips of rows times N inputs.
template <class Tiles, class Panels, class Real, int S, int N>
inline void run_tile(Panels a, std::int32_t depth, Columns<Real> io, bool accumulate) {
  if constexpr (S <= Tiles::strips(N)) Tiles::template run<S, N>(a, depth, io, accumulate);
}

template <class Tiles, class Panels, class Real, int S, int... N>
inline void run_tile(std::int32_t columns, Panels a, std::int32_t depth, Columns<Real> io, bool accumulate,
                     std::integer_sequence<int, N...>) {
  using Tile = void (*)(Panels, std::int32_t, Columns<Real>, bool);
  static constexpr Tile kTiles[] = {run_tile<Tiles, Panels, Real, S, N + 1>...};
  kTiles[columns - 1](a, depth, io, accumulate);
}

template <class Panels>
inline Panels from_row(Panels a, std::int32_t row) {
  a.w += row / kPanel * a.panel + row % kPanel;
  return a;
}

/// Each block of weights is read once from memory: further groups of inputs read it from a cache.
template <class Tiles, class Panels, class Real>
inline void panel_product(Panels a, std::int32_t panels, std::int32_t depth, Columns<Real> io,
                          std::int32_t columns, bool accumulate) {
  constexpr std::make_integer_sequence<int, Tiles::kColumns> kEach{};
  const std::int32_t rows = panels * kPanel;
  const int wanted = Tiles::strips(std::min(columns, Tiles::kColumns));
  for (std::int32_t row = 0; row < rows;) {
    const std::int32_t left = (rows - row) / Tiles::kLanes;
    const int strips = std::min(wanted, left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1);
    const Panels block = from_row(a, row);
    for_column_groups(columns, Tiles::kColumns, [&](std::int32_t first, std::int32_t count) {
      const Columns<Real> part{io.x + first * io.ldx, io.ldx, io.y + first * io.ldy + row, io.ldy};
      if (strips == 8)
        run_tile<Tiles, Panels, Real, 8>(count, block, depth, part, accumulate, kEach);
      else if (strips == 4)
        run_tile<Tiles, Panels, Real, 4>(count, block, depth, part, accumulate, kEach);
      else if (strips == 2)
        run_tile<Tiles, Panels, Real, 2>(count, block, depth, part, accumulate, kEach);
      else
        run_tile<Tiles, Panels, Real, 1>(count, block, depth, part, accumulate, kEach);
    });
    row += strips * Tiles::kLanes;
  }
}

/// The columns of a panel from column k on, which is even.
inline Bf16Panels from_column(Bf16Panels a, std::ptrdiff_t k) { return {a.w + k * (kPanel / 2), a.panel}; }
inline HalfPanels from_column(HalfPanels a, std::ptrdiff_t k) { return {a.w + k * kPanel, a.panel}; }

/// The same with each weight converted once, for all inputs. It changes no bit: sums continue from block to
/// block. So many columns of `Together` panels are converted at a time that the L1 cache holds them besides
/// inputs.
template <class Tiles, int Together = 1, class Panels, class Real>
inline void expanded_product(Panels a, std::int32_t panels, std::int32_t depth, Columns<Real> io,
                             std::int32_t columns, bool accumulate) {
  constexpr std::int32_t kExpanded = Together == 1 ? 128 : 256 / Together;
  alignas(64) Real block[Together][kExpanded * kPanel];
  for (std::int32_t v = 0; v < panels; v += Together, io.y += Together * kPanel) {
    const std::int32_t some = std::min(Together, panels - v);
    std::int32_t k = 0;
    do {  // of no columns, sums are written, too
      const std::int32_t count = std::min(kExpanded, depth - k);
      for (std::int32_t p = 0; p < some; ++p)
        Tiles::expand(from_column(from_row(a, (v + p) * kPanel), k), count, block[p]);
      panel_product<Tiles>(RealPanels<Real>{block[0], kExpanded * kPanel, kPanel}, some, count,
                           Columns<Real>{io.x + k, io.ldx, io.y, io.ldy}, columns, accumulate || k > 0);
    } while ((k += kExpanded) < depth);
  }
}

/// In Eigen's packets. Many inputs share a conversion, and half floats are always converted first.
template <class Panels, class Real>
inline void portable_product(Panels a, std::int32_t panels, std::int32_t depth, Columns<Real> io,
                             std::int32_t columns, bool accumulate) {
  using Tiles = portable::Tiles<Real>;
  if constexpr (std::is_same_v<Panels, HalfPanels>) {
    expanded_product<Tiles>(a, panels, depth, io, columns, accumulate);
  } else {
    if constexpr (std::is_same_v<Panels, Bf16Panels>) {
      if (columns > 2 * Tiles::kColumns)
        return for_column_groups(columns, 64, [&](std::int32_t first, std::int32_t count) {
          expanded_product<Tiles>(a, panels, depth,
                                  Columns<Real>{io.x + first * io.ldx, io.ldx, io.y + first * io.ldy, io.ldy},
                                  count, accumulate);
        });
    }
    panel_product<Tiles>(a, panels, depth, io, columns, accumulate);
  }
}

/// y (+)= W x on the instructions of `isa`. For one isa, the bits of an output depend on its row and its
/// input alone.
template <class Panels, class Real>
inline void panel_product(Isa isa, Panels a, std::int32_t panels, std::int32_t depth, Columns<Real> io,
                          std::int32_t columns, bool accumulate = false) {
#if SPECULA_X86
  if constexpr (std::is_same_v<Panels, HalfPanels>) {
    if (isa == Isa::avx512 && columns > avx512::Tiles::kColumns)
      return expanded_product<avx512::Tiles, 4>(a, panels, depth, io, columns, accumulate);
    if (isa == Isa::avx2 && columns > avx2::Tiles::kColumns)
      return expanded_product<avx2::Tiles, 1>(a, panels, depth, io, columns, accumulate);
  }
  if constexpr (std::is_same_v<Real, float>) {
    if (isa == Isa::avx512) return panel_product<avx512::Tiles>(a, panels, depth, io, columns, accumulate);
    if (isa == Isa::avx2) return panel_product<avx2::Tiles>(a, panels, depth, io, columns, accumulate);
  }
#endif
  static_cast<void>(isa);
  portable_product(a, panels, depth, io, columns, accumulate);
}

}  // namespace specula::cpu::detail
