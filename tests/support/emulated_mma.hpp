// SPDX-License-Identifier: MIT
// Tensor core instructions (mma, ldmatrix) and asynchronous copies for emulated warps, written from the
// tables of the PTX manual, independent of the library's layout functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <specula/cuda/args/types.cuh>
#include <specula/cuda/detail/primitives/thread/numbers.cuh>
#include <stdexcept>
#include <utility>
#include <vector>

#include "emulated_copies.hpp"
#include "emulated_gpu.hpp"

namespace specula_test {

/// mma.sync.aligned.m16n8k16.row.col.f32: c += A B. Sums in float, in the order of k.
template <class Element>
void mma(const EmulatedWarp& warp, Element, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
         std::uint32_t b1) {
  struct Registers {
    std::uint32_t a[4], b[2];
  };
  const auto all = warp.exchange(Registers{{a[0], a[1], a[2], a[3]}, {b0, b1}}, 16);
  const int group = warp.rank() / 4, in_group = warp.rank() % 4;
  const auto half = [](std::uint32_t reg, int i) {
    return specula::cuda::detail::to_float(Element{static_cast<std::uint16_t>(i == 0 ? reg : reg >> 16)});
  };
  float rows[2][16], columns[2][16];
  for (int lane = 0; lane < 4; ++lane) {  // the four lanes of this group hold rows `group` and `group` + 8
    const Registers r = all[4 * group + lane];
    for (int i = 0; i < 2; ++i) {
      rows[0][2 * lane + i] = half(r.a[0], i);
      rows[1][2 * lane + i] = half(r.a[1], i);
      rows[0][2 * lane + i + 8] = half(r.a[2], i);
      rows[1][2 * lane + i + 8] = half(r.a[3], i);
    }
    for (int column = 0; column < 2; ++column) {
      const Registers s = all[4 * (2 * in_group + column) + lane];
      for (int i = 0; i < 2; ++i) {
        columns[column][2 * lane + i] = half(s.b[0], i);
        columns[column][2 * lane + i + 8] = half(s.b[1], i);
      }
    }
  }
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k) c[i] += rows[i / 2][k] * columns[i % 2][k];
}

namespace emulation {

/// A row of a matrix, read when the lane that points at it reaches the instruction:
/// ldmatrix orders no memory.
struct MatrixRow {
  std::uint16_t elements[8];
  std::uintptr_t address;
};

inline EmulatedWarp::Given<MatrixRow> matrix_rows(const EmulatedWarp& warp, const void* row,
                                                  std::uint32_t kind) {
  MatrixRow mine;
  mine.address = reinterpret_cast<std::uintptr_t>(row);
  std::memcpy(mine.elements, row, sizeof mine.elements);
  const auto rows = warp.exchange(mine, kind);
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint32_t banks = 0;
    for (int r = 0; r < 8; ++r) {
      const std::uintptr_t at = rows[8 * matrix + r].address;
      if (at % 16 != 0) throw std::runtime_error("ldmatrix: a row is not 16-byte aligned");
      banks |= 1u << (at / 16 % 8);
    }
    if (banks != 0xFFu) throw std::runtime_error("ldmatrix: bank conflicts");
  }
  return rows;
}

}  // namespace emulation

/// ldmatrix.sync.aligned.m8n8.x4.shared.b16. Throws on bank conflicts.
inline void load_matrices(const EmulatedWarp& warp, const void* row, std::uint32_t (&out)[4]) {
  const auto rows = emulation::matrix_rows(warp, row, 18);
  const int lane = warp.rank();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const emulation::MatrixRow from = rows[8 * matrix + lane / 4];
    out[matrix] =
        from.elements[2 * (lane % 4)] | static_cast<std::uint32_t>(from.elements[2 * (lane % 4) + 1]) << 16;
  }
}
/// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16.
inline void load_transposed(const EmulatedWarp& warp, const void* row, std::uint32_t (&out)[4]) {
  const auto rows = emulation::matrix_rows(warp, row, 19);
  const int lane = warp.rank();
  for (int matrix = 0; matrix < 4; ++matrix)
    out[matrix] = rows[8 * matrix + 2 * (lane % 4)].elements[lane / 4] |
                  static_cast<std::uint32_t>(rows[8 * matrix + 2 * (lane % 4) + 1].elements[lane / 4]) << 16;
}

}  // namespace specula_test
