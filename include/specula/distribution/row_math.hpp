// SPDX-License-Identifier: MIT
// Run-time dispatch of the tile kernels, and access to the tiles of a row, the last one padded.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>

#include "specula/base/rows.hpp"
#include "specula/distribution/row_kernels.hpp"
#include "specula/distribution/row_kernels_simd.hpp"
#include "specula/simd/isa.hpp"

namespace specula::detail {

inline std::atomic<Isa>& isa_choice() {
  static std::atomic<Isa> choice{best_isa()};
  return choice;
}
inline Isa isa() { return isa_choice().load(std::memory_order_relaxed); }

/// For tests and benchmarks: computes every row from now on with `isa`. Throws std::invalid_argument if
/// this processor lacks it.
inline void use_isa(Isa isa) {
  if (!supported(isa))
    throw std::invalid_argument("use_isa: this processor lacks the instruction set asked for");
  isa_choice().store(isa, std::memory_order_relaxed);
}

inline const RowKernels& kernels() {
  static constexpr RowKernels kTables[] = {
    ReferenceKernels::table(),
    row_kernels<Isa::portable>(),
#if SPECULA_X86
    row_kernels<Isa::avx2>(),
    row_kernels<Isa::avx512>()
#endif
  };
  return kTables[static_cast<std::size_t>(isa())];
}

inline constexpr std::int32_t tile_count(std::int32_t vocab) { return (vocab + kTile - 1) / kTile; }

/// `count` logits, fewer than a tile, copied to `padding` and padded with -infinity.
[[gnu::noinline]] inline const float* padded_tile(const float* logits, std::int32_t count,
                                                  std::array<float, kTile>& padding) {
  constexpr std::int32_t kPiece = 64;  // of a known length, so in wide stores
  for (std::int32_t i = count / kPiece * kPiece; i < kTile; i += kPiece)
    std::fill_n(padding.begin() + i, kPiece, -std::numeric_limits<float>::infinity());
  std::copy_n(logits, count, padding.begin());
  return padding.data();
}
/// The same of logits of 16 bits, from number `begin` on, as floats.
[[gnu::noinline]] inline const float* widened_tile(const RowPointer& row, std::int32_t begin,
                                                   std::int32_t count, std::array<float, kTile>& padding) {
  const auto widen = row.format == RowFormat::half ? kernels().widen_half : kernels().widen_bfloat16;
  const auto* from = static_cast<const std::uint16_t*>(row.data) + begin;
  if (count == kTile) {
    widen(from, padding.data());
    return padding.data();
  }
  std::array<std::uint16_t, kTile> last{};
  std::copy_n(from, count, last.begin());
  widen(last.data(), padding.data());
  std::fill(padding.begin() + count, padding.end(), -std::numeric_limits<float>::infinity());
  return padding.data();
}
/// Tile `index` of a row of `vocab` logits: in place where it is whole and of floats, else copied to
/// `padding` and padded with -infinity.
[[gnu::always_inline]] inline const float* tile_at(const RowPointer& row, std::int32_t vocab,
                                                   std::int32_t index, std::array<float, kTile>& padding) {
  const std::int32_t begin = index * kTile, count = std::min(kTile, vocab - begin);
  if (row.format != RowFormat::full) return widened_tile(row, begin, count, padding);
  return count == kTile ? row.floats() + begin : padded_tile(row.floats() + begin, count, padding);
}

/// 2^d for d <= 0; integers without a library call.
inline double pow2(double d) {
  if (d < -1022) return 0;
  const auto n = static_cast<std::int64_t>(d);
  return static_cast<double>(n) == d ? std::bit_cast<double>((n + 1023) << 52) : std::exp2(d);
}

/// Sum of tile masses in one fixed order: chunks of 8 tiles in order.
inline double merge_tiles(std::span<const double> masses) {
  double total = 0;
  for (std::size_t chunk = 0; chunk < masses.size(); chunk += 8) {
    double sum = 0;
    for (std::size_t t = chunk; t < std::min(chunk + 8, masses.size()); ++t) sum += masses[t];
    total += sum;
  }
  return total;
}

}  // namespace specula::detail
