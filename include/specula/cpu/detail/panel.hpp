// SPDX-License-Identifier: MIT
// Panel layout of matrices, and the product of panels with vectors that all matrix products use.
//
// Rows lie in panels of 16, column by column, so that a vector register holds 16 rows and one output is one
// chain of multiply-adds over ascending columns. No sum is ever split or reduced across lanes: the bits of an
// output depend on its row and its input alone, not on the number of inputs in the pass, the register block,
// or the thread.
//
//   y[c][16 v + r] (+)= sum over k of w(v, k, r) * x[c][k]
//
// Weights, keys (a panel is 16 positions, k is the feature) and values (a panel is 16 features, k is the
// position) all have this layout.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "specula/base/compiler_options.hpp"

namespace specula::cpu::detail {

inline constexpr std::int32_t kPanel = 16;  // rows of a panel

template <class T>
constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Stride between vectors of `size` values: whole panels, but no multiple of 4096 bytes, since the inputs of
/// a register block would then fall into the same set of the L1 cache (20% slower with 8 of them).
template <class Real>
constexpr std::int32_t column_stride(std::int32_t size) {
  const std::int32_t whole = round_up(size, kPanel);
  return whole * static_cast<std::int32_t>(sizeof(Real)) % 4096 == 0 ? whole + kPanel : whole;
}

/// Pairs of bfloat16: w[v * panel + (k / 2) * 16 + r] holds column k in its low half and k + 1 in its high
/// half, so that a shift and a mask convert them to float. The last pair of an odd number of columns has 0 in
/// its high half.
struct Bf16Panels {
  const std::uint32_t* w;
  std::ptrdiff_t panel;  // stride from panel to panel
};

/// One of a pair, converted exactly.
template <class Real>
[[gnu::always_inline]] inline Real bf16_half(std::uint32_t pair, bool high) {
  return static_cast<Real>(std::bit_cast<float>(high ? pair & 0xffff0000u : pair << 16));
}

/// The nearest bfloat16, ties to even, in the upper half; NaN stays one.
[[gnu::always_inline]] inline std::uint32_t round_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return (bits | 0x400000u) & 0xffff0000u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
}

/// Half floats: w[v * panel + k * 16 + r].
struct HalfPanels {
  const std::uint16_t* w;
  std::ptrdiff_t panel;  // stride from panel to panel
};

template <class Real>
struct RealPanels {
  const Real* w;         // w[v * panel + k * column + r]
  std::ptrdiff_t panel;  // stride from panel to panel
  std::ptrdiff_t column;
};

/// Inputs and outputs: `columns` vectors, each contiguous.
template <class Real>
struct Columns {
  const Real* x;  // (columns, depth), ldx apart
  std::ptrdiff_t ldx;
  Real* y;  // (columns, 16 * panels), ldy apart
  std::ptrdiff_t ldy;
};

/// Runs `pass(first, count)` over `columns` in groups of at most `most`, as even as possible.
template <class Pass>
inline void for_column_groups(std::int32_t columns, std::int32_t most, Pass&& pass) {
  const std::int32_t groups = (columns + most - 1) / most;
  for (std::int32_t g = 0, first = 0; g < groups; ++g) {
    const std::int32_t count = (columns - first + groups - g - 1) / (groups - g);
    pass(first, count);
    first += count;
  }
}

}  // namespace specula::cpu::detail
