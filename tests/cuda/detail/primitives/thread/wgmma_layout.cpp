// SPDX-License-Identifier: MIT
// Shared memory layouts and descriptors of wgmma.

#include <doctest/doctest.h>
#include <specula/cuda/detail/primitives/thread/wgmma_layout.cuh>

#include <cstdint>
#include <set>
#include <vector>

#include "emulated_wgmma.hpp"

using namespace specula::cuda::detail;
using specula_test::emulation::operand_address;

namespace {

/// A tile of `kRows` rows and D columns as the library writes it: where its elements are.
template <int kRows>
std::uint32_t element_address(std::uint32_t tile, int row, int column) {
  return tile + static_cast<std::uint32_t>(panel_offset<kRows>(row, column / 8) + column % 8 * 2);
}

/// As products read it: keys for S = Q K^T, values for O += P V of `columns` columns.
template <int kRows>
int wrong_addresses(std::uint32_t tile, int columns) {
  int wrong = 0;
  for (int step = 0; step < columns / 16; ++step)
    for (int key = 0; key < kRows; ++key)
      for (int k = 0; k < 16; ++k)
        wrong += operand_address(key_descriptor(tile) + key_step<kRows>(step), false, key, k) !=
                 element_address<kRows>(tile, key, 16 * step + k);
  for (int step = 0; step < kRows / 16; ++step)
    for (int column = 0; column < columns; ++column)
      for (int k = 0; k < 16; ++k)
        wrong += operand_address(value_descriptor<kRows>(tile) + value_step(step), true, column, k) !=
                 element_address<kRows>(tile, 16 * step + k, column);
  return wrong;
}

}  // namespace

TEST_CASE("descriptors give the addresses of a tile's elements") {
  for (const std::uint32_t tile : {0u, 1024u, 5u * 32768u, 5u * 32768u + 16384u, 226u * 1024u - 16384u})
    for (const int columns : {64, 128}) {
      CHECK(wrong_addresses<64>(tile, columns) == 0);
      CHECK(wrong_addresses<128>(tile & 0x1FFFF, columns) == 0);
    }
}

TEST_CASE("bits of descriptors, computed by hand") {
  // Address 0x8400; from eight rows to the next 1,024 bytes; K-major: 1 where the leading offset would be.
  CHECK(key_descriptor(0x8400) == 0x4000'0040'0001'0840);
  CHECK(key_descriptor(0x8400) + key_step<64>(1) == 0x4000'0040'0001'0842);
  CHECK(key_descriptor(0x8400) + key_step<64>(3) == 0x4000'0040'0001'0846);
  CHECK(key_descriptor(0x8400) + key_step<64>(4) == 0x4000'0040'0001'0A40);
  CHECK(key_descriptor(0x8400) + key_step<64>(7) == 0x4000'0040'0001'0A46);
  // MN-major: 8,192 bytes to the next 64 columns.
  CHECK(value_descriptor<64>(0x8400) == 0x4000'0040'0200'0840);
  CHECK(value_descriptor<64>(0x8400) + value_step(3) == 0x4000'0040'0200'09C0);
  // No more than 18 bits of an address.
  CHECK(key_descriptor(0x3FC00) == 0x4000'0040'0001'3FC0);
  CHECK(key_descriptor(0x43FC00) == 0x4000'0040'0001'3FC0);
}

TEST_CASE("chunks of a tile: all of it, each once, without bank conflicts") {
  std::set<int> seen;
  for (int row = 0; row < 64; ++row)
    for (int chunk = 0; chunk < 16; ++chunk) {
      const int at = panel_offset<64>(row, chunk);
      CHECK(at % 16 == 0);
      CHECK(at >= 0);
      CHECK(at < 64 * 128 * 2);
      seen.insert(at);
    }
  CHECK(seen.size() == 64 * 16);
  for (int chunk = 0; chunk < 16; ++chunk)
    for (int row = 0; row < 64; row += 8) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) banks.insert(panel_offset<64>(row + i, chunk) / 16 % 8);
      CHECK(banks.size() == 8);
    }
  // The manual's figure of 128-byte swizzling: row 1 begins with chunk 1, row 2 with chunk 2, ...
  for (int row = 0; row < 8; ++row) {
    CHECK(panel_offset<64>(row, row) == 128 * row);
    CHECK(panel_offset<64>(row, 0) == 128 * row + 16 * row);
  }
  CHECK(panel_offset<64>(0, 8) == 8192);
  CHECK(panel_offset<64>(9, 3) == 1024 + 128 + 16 * 2);
}

TEST_CASE("positions in a ring and their parities") {
  RingPlace<3> at;
  for (int i = 0; i < 20; ++i, at.advance()) {
    CHECK(at.stage == i % 3);
    CHECK(at.parity == static_cast<std::uint32_t>(i / 3 % 2));
  }
}
