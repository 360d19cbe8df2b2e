// SPDX-License-Identifier: MIT
// wgmma operand layout in shared memory: 128-byte swizzle and matrix descriptors. PTX ISA, "Asynchronous
// warpgroup level matrix shared memory layout" and "Matrix descriptor format".
#pragma once

#include "specula/cuda/args/integers.cuh"

namespace specula {
namespace cuda {
namespace detail {

// A tile has rows (keys) of D elements of 2 bytes, and lies in panels of 64 columns: a row of a panel is 128
// bytes, eight rows are an atom of 1,024. The hardware takes bits 7-9 of an address, with atoms that are
// 1,024-byte aligned the row modulo 8, and adds them without carry to bits 4-6, the chunk of 16 bytes in the
// row. Eight rows of one chunk are thus in different banks, and so are the eight chunks of a row.

constexpr int kPanelChunks = 8, kPanelRowBytes = 128, kAtomBytes = 1024;

/// Bytes from the begin of a tile of kRows rows to chunk `chunk` (columns 8 * chunk and on) of row `row`.
template <int kRows>
SPECULA_HD int panel_offset(int row, int chunk) {
  return chunk / kPanelChunks * (kRows * kPanelRowBytes) + row * kPanelRowBytes +
         (chunk % kPanelChunks ^ row % 8) * 16;
}

/// Where chunk `chunk` of e4m3 bytes of a row is kept until it becomes chunks 2 * chunk and 2 * chunk + 1: in
/// the place of one of them; the other one's is 16 bytes above or below. For the columns from 64 on it is the
/// second one, so that the eight chunks of 128 columns are in different banks.
template <int kRows>
SPECULA_HD int narrow_offset(int row, int chunk) {
  return panel_offset<kRows>(row, 2 * chunk + chunk / 4 % 2);
}

/// The descriptor of a matrix in the 128-byte swizzle (bits 62-63: 1) that begins at `address` of shared
/// memory, all in units of 16 bytes: bits 0-13 the address, 16-29 the leading dimension's offset, 32-45 the
/// stride dimension's. The base offset, bits 49-51, is 0: atoms are 1,024-byte aligned.
SPECULA_HD std::uint64_t matrix_descriptor(std::uint32_t address, std::uint32_t leading,
                                           std::uint32_t stride) {
  return (address & 0x3FFFFu) >> 4 | static_cast<std::uint64_t>(leading >> 4) << 16 |
         static_cast<std::uint64_t>(stride >> 4) << 32 | std::uint64_t{1} << 62;
}

/// A tile of keys at `address` as B of S = Q K^T: K-major, since the columns that a product sums over follow
/// each other. Stride: from eight keys to the next eight, an atom. Leading: unused where K-major is swizzled.
SPECULA_HD std::uint64_t key_descriptor(std::uint32_t address) {
  return matrix_descriptor(address, 16, kAtomBytes);
}
/// Increment of key_descriptor() for columns 16 * step and on: two chunks in the row, or a panel. The swizzle
/// is applied to the resulting address, so a descriptor may begin inside a row.
template <int kRows>
SPECULA_HD std::uint64_t key_step(int step) {
  return static_cast<std::uint64_t>(step / 4 * (kRows * kPanelRowBytes) + step % 4 * 32) >> 4;
}

/// A tile of values as B of O += P V: MN-major (transposed), since the columns of O follow each other, and
/// keys are summed over. Leading: from 64 columns to the next 64, a panel. Stride: from eight keys to the
/// next eight, an atom.
template <int kRows>
SPECULA_HD std::uint64_t value_descriptor(std::uint32_t address) {
  return matrix_descriptor(address, kRows * kPanelRowBytes, kAtomBytes);
}
/// Increment of value_descriptor() for keys 16 * step and on: two atoms.
SPECULA_HD std::uint64_t value_step(int step) {
  return static_cast<std::uint64_t>(step) * (2 * kAtomBytes) >> 4;
}

/// A place in a ring of stages, and the number of rounds through the ring, modulo 2.
template <int kStages>
struct RingPlace {
  int stage = 0;
  std::uint32_t parity = 0;

  SPECULA_HD void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
