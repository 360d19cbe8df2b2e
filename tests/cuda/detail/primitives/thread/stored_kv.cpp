// SPDX-License-Identifier: MIT
// Keys and values of 8 bits (e4m3), widened to 16 bits.

#include <doctest/doctest.h>
#include <specula/cuda/detail/primitives/thread/stored_kv.cuh>

#include <cmath>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "emulated_gpu.hpp"
#include "emulated_mma.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Float8E4M3;
using device::Half;
using device::detail::StoredKv;

namespace {

/// The value of a code by the format's definition; for NaN, that of a mantissa of 7.
double number(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double x = exponent == 0 ? mantissa * 0x1p-9 : std::ldexp(8 + mantissa, exponent - 10);
  return std::copysign(x, (code & 0x80) != 0 ? -1.0 : 1.0);
}
template <class Element>
double number(Element, std::uint32_t half) {
  return static_cast<double>(device::detail::to_float(Element{static_cast<std::uint16_t>(half)}));
}

}  // namespace

TEST_CASE_TEMPLATE("every code is widened without loss", Element, BFloat16, Half) {
  CHECK(number(0x7E) == 448);
  CHECK(number(0x38) == 1);
  CHECK(number(0x81) == -0x1p-9);
  Random random(1);
  for (int code = 0; code < 256; ++code)
    for (int other = 0; other < 256; ++other) {
      const auto noise = static_cast<std::uint32_t>(random.bits()) & 0x00FF00FFu;
      const auto pair = device::detail::widen(
          Element{}, noise | static_cast<std::uint32_t>(code) << 8 | static_cast<std::uint32_t>(other) << 24);
      const double low = number(Element{}, pair), high = number(Element{}, pair >> 16);
      if (low != number(static_cast<std::uint8_t>(code)) ||
          high != number(static_cast<std::uint8_t>(other)) || std::signbit(low) != (code >= 128) ||
          std::signbit(high) != (other >= 128))
        FAIL("code ", code, ", ", other);
    }
  CHECK(number(Element{}, device::detail::widen(Element{}, 0x7F00)) == 480);  // NaN
  CHECK(number(Element{}, device::detail::widen(Element{}, 0xFF00)) == -480);
}

TEST_CASE("columns of the products: a permutation of each sixteen columns of a row") {
  using Bytes = StoredKv<BFloat16, Float8E4M3>;
  using Same = StoredKv<BFloat16, BFloat16>;
  std::vector<BFloat16> row;
  for (std::uint16_t i = 0; i < 128; ++i) row.push_back({i});
  std::set<int> columns;
  for (int n = 0; n < 128; ++n) {
    CHECK(Same::column(n) == n);
    CHECK(Bytes::column(n) / 16 == n / 16);
    columns.insert(Bytes::column(n));
  }
  CHECK(columns.size() == 128);
  for (int n = 0; n < 128; n += 2) {
    CHECK(Same::load_pair(row.data(), n) == static_cast<std::uint32_t>(n | (n + 1) << 16));
    CHECK(Bytes::load_pair(row.data(), n) ==
          static_cast<std::uint32_t>(Bytes::column(n) | Bytes::column(n + 1) << 16));
  }
}

TEST_CASE_TEMPLATE("fragments: bytes of a tile become B of Q K^T and of P V, without bank conflicts", Size,
                   std::integral_constant<int, 64>, std::integral_constant<int, 128>) {
  constexpr int kHead = Size::value;
  using Kv = StoredKv<Half, Float8E4M3>;
  const auto place = [](int row, int column) {
    return device::detail::chunk_offset<kHead, 1>(row, column / 16) + column % 16;
  };
  Random random(kHead);
  std::vector<std::uint8_t> codes(64 * kHead);
  for (auto& code : codes) code = static_cast<std::uint8_t>(random.bits());
  const auto pair = [&](int key, int column, int other_key, int other_column) {
    const auto bits = [&](int r, int c) {
      const double x = number(codes[static_cast<std::size_t>(r * kHead + c)]);
      return device::detail::pack(Half{}, static_cast<float>(x), 0) & 0xFFFF;
    };
    return bits(key, column) | bits(other_key, other_column) << 16;
  };
  emulate({.threads = 32, .shared_bytes = 64 * kHead}, [&](EmulatedCluster cluster, int,
                                                           unsigned char* tile) {
    const auto warp = cluster.block().warp();
    const int lane = warp.rank();
    for (int i = lane; i < 64 * kHead; i += 32)
      tile[place(i / kHead, i % kHead)] = codes[static_cast<std::size_t>(i)];
    warp.sync();
    for (int first = 0; first < 64; first += 16)
      for (int c = 0; c < kHead / 32; ++c) {
        std::uint32_t k[4], v[4], f[4];
        const auto key = device::detail::key_cell(lane), value = device::detail::value_cell(lane);
        load_matrices(warp,
                      tile + device::detail::chunk_offset<kHead, 1>(first + key.row, 2 * c + key.column), k);
        load_transposed(
            warp, tile + device::detail::chunk_offset<kHead, 1>(first + value.row, 2 * c + value.column), v);
        for (int step = 0; step < Kv::kSteps; ++step)
          for (int r = 0; r < 4; ++r) {
            // B of Q K^T is (columns of K, keys), of P V (keys, columns of V).
            const auto at = device::detail::b_cell(lane, r % 2);
            const int columns = 16 * (2 * c + step);
            const int k_key = first + 8 * (r / 2) + at.column;
            Kv::keys(k, step, f);
            if (f[r] != pair(k_key, Kv::column(columns + at.row), k_key, Kv::column(columns + at.row + 1)))
              throw std::runtime_error("not the fragment of keys");
            const int v_column = Kv::column(columns + 8 * (r / 2) + at.column);
            Kv::values(v, step, f);
            if (f[r] != pair(first + at.row, v_column, first + at.row + 1, v_column))
              throw std::runtime_error("not the fragment of values");
          }
      }
  });
  // Every chunk has its own place; eight lanes that copy consecutive chunks use all banks.
  std::set<int> places;
  for (int row = 0; row < 64; ++row)
    for (int chunk = 0; chunk < kHead / 16; ++chunk)
      places.insert(device::detail::chunk_offset<kHead, 1>(row, chunk));
  CHECK(places.size() == 64 * kHead / 16);
  CHECK(*places.rbegin() == 64 * kHead - 16);
  CHECK(*places.begin() == 0);
  for (int first = 0; first < 64 * kHead / 16; first += 8) {
    std::set<int> banks;
    for (int i = first; i < first + 8; ++i)
      banks.insert(device::detail::chunk_offset<kHead, 1>(i / (kHead / 16), i % (kHead / 16)) / 16 % 8);
    CHECK(banks.size() == 8);
  }
}

TEST_CASE_TEMPLATE("columns of the products return to their places", Stored, BFloat16, Float8E4M3) {
  using Kv = device::detail::StoredKv<BFloat16, Stored>;
  BFloat16 sixteen[16] = {};
  for (int c = 0; c < 8; c += 2) {
    const float x[4] = {static_cast<float>(c), static_cast<float>(c + 1), static_cast<float>(8 + c),
                        static_cast<float>(9 + c)};
    Kv::store(sixteen, c, x);
  }
  for (int n = 0; n < 16; ++n)
    CHECK(device::detail::to_float(sixteen[Kv::column(n)]) == static_cast<float>(n));
}
