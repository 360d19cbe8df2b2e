// SPDX-License-Identifier: MIT
// Register fragment layouts of mma.m16n8k16 (A: 16 x 16, B: 16 x 8, C: 16 x 8) and the shared-memory swizzle
// that ldmatrix reads. PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix".
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

struct Cell {
  int row, column;
};

/// The first of the two elements of A in a lane's register 0..3; the other one is in the next column.
SPECULA_HD Cell a_cell(int lane, int reg) {
  return {lane / 4 + 8 * (reg % 2), 2 * (lane % 4) + 8 * (reg / 2)};
}
/// The first of the two elements of B in a lane's register 0..1; the other one is in the next row.
SPECULA_HD Cell b_cell(int lane, int reg) { return {2 * (lane % 4) + 8 * reg, lane / 4}; }
/// The element of C that is a lane's number 0..3.
SPECULA_HD Cell c_cell(int lane, int i) { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }

// A tile has rows (keys) of kHead elements, in chunks of 16 bytes. Chunk c of row r is at place c ^ r % 8:
// the 8 rows of a matrix that ldmatrix reads are then in different banks, and so are the chunks of a row.
// Rows of 64 bytes have 4 chunks; two of them form one row of that kind.

/// Bytes from the tile's begin to a chunk; an element has kBytes.
template <int kHead, int kBytes = 2>
SPECULA_HD int chunk_offset(int row, int chunk) {
  constexpr int kRow = kHead * kBytes;
  static_assert(kRow >= 64, "8 rows in 8 different places");
  return row * kRow + ((chunk ^ (kRow >= 128 ? row % 8 : row / 2 % 4)) * 16);
}

/// The row and chunk, of 16 rows and 2 chunks, whose address a lane gives to ldmatrix so that the four
/// registers are B of two products C += Q K^T: registers 0 and 1 for keys 0..7, 2 and 3 for keys 8..15.
SPECULA_HD Cell key_cell(int lane) { return {8 * (lane / 16) + lane % 8, lane / 8 % 2}; }
/// The same for ldmatrix.trans and two products C += P V: registers 0 and 1 for columns 0..7, 2 and 3 for
/// columns 8..15.
SPECULA_HD Cell value_cell(int lane) { return {lane % 16, lane / 16}; }

/// Two floats as the elements of a register, the first in the low half; ties to even.
SPECULA_HD std::uint32_t pack(BFloat16, float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  const auto round = [](float x) {
    const std::uint32_t b = bits_of(x);
    return is_nan(x) ? 0x7FFFu : (b + 0x7FFFu + (b >> 16 & 1)) >> 16;
  };
  return round(low) | round(high) << 16;
#endif
}
SPECULA_HD std::uint32_t pack(Half, float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  const auto round = [](float x) -> std::uint32_t {
    const std::uint32_t sign = bits_of(x) >> 16 & 0x8000u, b = bits_of(x) & 0x7FFFFFFFu;
    if (is_nan(x)) return 0x7FFFu;
    if (b >= 0x477FF000u) return sign | 0x7C00u;  // 65520 and above
    if (b < 0x38800000u)                          // below 2^-14: a multiple of 2^-24
      return sign | static_cast<std::uint32_t>(nearest(float_of(b) * 0x1p24f));
    const std::uint32_t even = (b + 0xFFFu + (b >> 13 & 1)) >> 13;
    return sign | (even - (112u << 10));
  };
  return round(low) | round(high) << 16;
#endif
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
