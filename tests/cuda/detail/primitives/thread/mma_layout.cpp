// SPDX-License-Identifier: MIT
// Register and shared memory layouts of mma.sync.

#include <doctest/doctest.h>
#include <specula/cuda/detail/primitives/thread/mma_layout.cuh>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "emulated_gpu.hpp"
#include "emulated_mma.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Half;
using device::detail::pack;
using device::detail::to_float;

TEST_CASE("fragments: the elements are those that mma multiplies") {
  Random random(1);
  float a[16][16], b[16][8], c[16][8] = {};
  for (auto& row : a)
    for (float& x : row) x = static_cast<float>(random.below(9) - 4);
  for (auto& row : b)
    for (float& x : row) x = static_cast<float>(random.below(9) - 4);
  emulate({.threads = 32}, [&](EmulatedCluster cluster, int, unsigned char*) {
    const auto warp = cluster.block().warp();
    const int lane = warp.rank();
    std::uint32_t ra[4], rb[2];
    for (int r = 0; r < 4; ++r) {
      const auto at = device::detail::a_cell(lane, r);
      ra[r] = pack(BFloat16{}, a[at.row][at.column], a[at.row][at.column + 1]);
    }
    for (int r = 0; r < 2; ++r) {
      const auto at = device::detail::b_cell(lane, r);
      rb[r] = pack(BFloat16{}, b[at.row][at.column], b[at.row + 1][at.column]);
    }
    float rc[4] = {1, 2, 3, 4};
    mma(warp, BFloat16{}, rc, ra, rb[0], rb[1]);
    for (int i = 0; i < 4; ++i) {
      const auto at = device::detail::c_cell(lane, i);
      c[at.row][at.column] = rc[i] - static_cast<float>(i + 1);
    }
  });
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n) {
      float want = 0;
      for (int k = 0; k < 16; ++k) want += a[m][k] * b[k][n];
      CHECK(c[m][n] == want);
    }
}

TEST_CASE_TEMPLATE("tiles: ldmatrix gives B of Q K^T and of P V, without bank conflicts", Size,
                   std::integral_constant<int, 64>, std::integral_constant<int, 128>) {
  constexpr int kHead = Size::value;
  // Element (row, column) is row * 128 + column.
  const auto put = [](unsigned char* tile) {
    for (int row = 0; row < 64; ++row)
      for (int column = 0; column < kHead; ++column) {
        const auto x = static_cast<std::uint16_t>(row * 128 + column);
        std::memcpy(tile + device::detail::chunk_offset<kHead>(row, column / 8) + column % 8 * 2, &x, 2);
      }
  };
  emulate({.threads = 32, .shared_bytes = 64 * kHead * 2}, [&](EmulatedCluster cluster, int,
                                                               unsigned char* tile) {
    const auto warp = cluster.block().warp();
    const int lane = warp.rank();
    if (lane == 0) put(tile);
    warp.sync();
    for (int first = 0; first < 64; first += 16)
      for (int c = 0; c < kHead / 16; ++c) {
        std::uint32_t k[4], v[4];
        const auto key = device::detail::key_cell(lane), value = device::detail::value_cell(lane);
        load_matrices(warp, tile + device::detail::chunk_offset<kHead>(first + key.row, 2 * c + key.column),
                      k);
        load_transposed(
            warp, tile + device::detail::chunk_offset<kHead>(first + value.row, 2 * c + value.column), v);
        for (int r = 0; r < 4; ++r) {
          const auto at = device::detail::b_cell(lane, r % 2);
          // B of Q K^T is (columns of K, keys), of P V (keys, columns of V).
          const int k_key = first + 8 * (r / 2) + at.column, k_column = 16 * c + at.row;
          const int v_key = first + at.row, v_column = 16 * c + 8 * (r / 2) + at.column;
          const auto want_k = static_cast<std::uint32_t>(k_key * 128 + k_column);
          const auto want_v = static_cast<std::uint32_t>(v_key * 128 + v_column);
          if (k[r] != (want_k | (want_k + 1) << 16) || v[r] != (want_v | (want_v + 128) << 16))
            throw std::runtime_error("not the fragment");
        }
      }
  });
  // Every chunk has its own place; eight lanes that copy a row's chunks use all banks.
  std::set<int> places;
  for (int row = 0; row < 64; ++row)
    for (int chunk = 0; chunk < kHead / 8; ++chunk)
      places.insert(device::detail::chunk_offset<kHead>(row, chunk));
  CHECK(places.size() == 64 * kHead / 8);
  CHECK(*places.rbegin() == 64 * kHead * 2 - 16);
  for (int row = 0; row < 64; ++row)
    for (int chunk = 0; chunk < kHead / 8; chunk += 8) {
      std::set<int> banks;
      for (int i = 0; i < 8; ++i) banks.insert(device::detail::chunk_offset<kHead>(row, chunk + i) / 16 % 8);
      CHECK(banks.size() == 8);
    }
}

TEST_CASE_TEMPLATE("pack rounds to the nearest, ties to even", Element, BFloat16, Half) {
  const std::uint16_t infinity = std::is_same_v<Element, Half> ? 0x7C00 : 0x7F80;
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const Element here{static_cast<std::uint16_t>(bits)}, next{static_cast<std::uint16_t>(bits + 1)};
    const float x = to_float(here);
    const auto pair = pack(Element{}, x, -x);
    CHECK_MESSAGE((pair & 0xFFFF) == bits, bits);
    CHECK_MESSAGE((pair >> 16) == (bits | 0x8000u), bits);
    if (bits + 1 == infinity) break;
    const float y = to_float(next),
                tie = static_cast<float>((static_cast<double>(x) + static_cast<double>(y)) / 2);
    if (!(tie > x && tie < y)) continue;  // no float between
    CHECK_MESSAGE((pack(Element{}, tie, 0) & 0xFFFF) == bits + (bits & 1), bits);
    CHECK_MESSAGE((pack(Element{}, std::nextafter(tie, x), 0) & 0xFFFF) == bits, bits);
    CHECK_MESSAGE((pack(Element{}, 0, std::nextafter(tie, y)) >> 16) == bits + 1, bits);
  }
  CHECK(pack(Element{}, INFINITY, -INFINITY) == (infinity | (infinity | 0x8000u) << 16));
  CHECK((pack(Element{}, 3.4e38f, 0) & 0xFFFF) == infinity);
  CHECK(device::detail::is_nan(to_float(Element{static_cast<std::uint16_t>(pack(Element{}, NAN, 0))})));
}

TEST_CASE("emulated copies write their destination in wait(), not before") {
  alignas(16) unsigned char from[48], to[48];
  for (int i = 0; i < 48; ++i) from[i] = static_cast<unsigned char>(i);
  std::memset(to, 7, sizeof to);
  EmulatedCopies copies;
  for (int i = 0; i < 3; ++i) {
    copies.copy(to + 16 * i, from + 16 * i, i != 1);
    copies.commit();
    CHECK(to[16 * i + 5] == 0xFF);
  }
  copies.wait<2>();
  CHECK(to[5] == 5);
  CHECK(to[16 + 5] == 0xFF);
  copies.wait<0>();
  CHECK(to[16 + 5] == 0);
  CHECK(to[32 + 5] == 37);
  CHECK(copies.idle());
  CHECK_THROWS(copies.copy(to + 8, from, true));
}
