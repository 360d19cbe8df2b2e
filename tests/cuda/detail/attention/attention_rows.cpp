// SPDX-License-Identifier: MIT
// Online softmax and products of sixteen rows in tree attention by mma.sync.

#include <doctest/doctest.h>
#include <specula/cuda/detail/attention/attention_rows.cuh>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "attention_scene.hpp"
#include "emulated_gpu.hpp"
#include "emulated_mma.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;
using device::BFloat16;
using device::Float8E4M3;
using device::Half;
using device::detail::AttentionRows;
using device::detail::HeldQueries;
using device::detail::ScoreMap;
using device::detail::SharedQueries;
using device::detail::StoredKv;

namespace {

template <class Element>
struct Matrix {
  int columns;
  std::vector<Element> data;
  Matrix(int rows, int of_columns, Random& random, double spread) : columns(of_columns) {
    for (int i = 0; i < rows * columns; ++i)
      data.push_back({nearest_bits(Element{}, random.between(-spread, spread))});
  }
  double at(int row, int column) const {
    return plain_value(data[static_cast<std::size_t>(row * columns + column)]);
  }
};

/// 11 rows of 16 over four batches of keys, bits of `seen` (rows, 4) where a batch is masked.
template <class Element, class Stored, int kHead, int kKeys, class Queries = HeldQueries<kHead>>
void check_rows(std::uint64_t seed, double spread) {
  Random random(seed);
  constexpr int kBytes = sizeof(Stored), kTile = kKeys * kHead * kBytes;
  const int rows = 11, batches = 4, keys = batches * kKeys;
  const Matrix<Element> q(rows, kHead, random, 1);
  const Matrix<Stored> v(keys, kHead, random, 2);
  Matrix<Stored> k(keys, kHead, random, spread);
  std::vector<std::uint64_t> seen;
  for (int i = 0; i < 16 * batches; ++i) seen.push_back(random.bernoulli(0.3) ? 0 : random.bits());
  const auto sees = [&](int row, int key) {
    return key / kKeys != 1 && key / kKeys != 3
               ? true
               : (seen[static_cast<std::size_t>(row * batches + key / kKeys)] >> (key % kKeys) & 1) != 0;
  };
  // A key that no row sees may be NaN.
  for (auto& bits : seen) bits &= ~std::uint64_t{4};
  for (int i = 0; i < kHead; ++i)
    k.data[static_cast<std::size_t>((kKeys + 2) * kHead + i)] = {kBytes == 1 ? 0x7F : 0x7FFF};

  float o[16][kHead], top[16], sum[16];
  emulate({.threads = 32, .shared_bytes = 2 * kTile + SharedQueries<kHead>::kBytes},
          [&](EmulatedCluster cluster, int, unsigned char* tiles) {
            const auto warp = cluster.block().warp();
            const int lane = warp.rank();
            Queries queries;
            const auto query = [&](int row) { return row < rows ? q.data.data() + row * kHead : nullptr; };
            if constexpr (std::is_same_v<Queries, HeldQueries<kHead>>) {
              queries.template load<StoredKv<Element, Stored>>(lane, query);
            } else {
              queries = Queries(lane, tiles + 2 * kTile);
              for (const int part : {1, 0})
                queries.template load<StoredKv<Element, Stored>, 2>(lane, query, part);
            }
            AttentionRows<Element, kHead, kKeys, Stored, Queries> mine;
            for (int batch = 0; batch < batches; ++batch) {
              warp.sync();
              for (int i = lane; i < kKeys * kHead; i += 32) {
                const int place =
                    device::detail::chunk_offset<kHead, kBytes>(i / kHead, i % kHead * kBytes / 16) +
                    i * kBytes % 16;
                std::memcpy(tiles + place, &k.data[static_cast<std::size_t>(batch * kKeys * kHead + i)],
                            kBytes);
                std::memcpy(tiles + kTile + place,
                            &v.data[static_cast<std::size_t>(batch * kKeys * kHead + i)], kBytes);
              }
              warp.sync();
              const auto sees_now = [&](int half) {
                const int row = device::detail::c_cell(lane, 2 * half).row;
                return seen[static_cast<std::size_t>(row * batches + batch)];
              };
              if (batch % 2 == 1)
                mine.template add<true>(warp, queries, tiles, tiles + kTile, 0, ScoreMap(0.3f, 0), sees_now);
              else
                mine.template add<false>(warp, queries, tiles, tiles + kTile, 0, ScoreMap(0.3f, 0), sees_now);
            }
            mine.finish(warp);
            for (int i = 0; i < 4; ++i) {
              const auto at = device::detail::c_cell(lane, i);
              for (int n = 0; n < kHead / 8; ++n)
                o[at.row][StoredKv<Element, Stored>::column(8 * n + at.column)] = mine.output(n, i);
              if (at.column == 0) top[at.row] = mine.maximum(i / 2), sum[at.row] = mine.sum(i / 2);
            }
          });

  for (int row = 0; row < rows; ++row) {
    double difference = 0, norm = 0;
    std::vector<double> s, out(kHead);
    double most = -INFINITY, total = 0;
    for (int key = 0; key < keys; ++key) {
      double x = -INFINITY;
      if (sees(row, key)) {
        x = 0;
        for (int i = 0; i < kHead; ++i) x += q.at(row, i) * k.at(key, i);
        x *= 0.3 * 1.4426950408889634;
      }
      s.push_back(x);
      most = std::max(most, x);
    }
    for (int key = 0; key < keys; ++key) {
      const double w = std::exp2(s[static_cast<std::size_t>(key)] - most);
      total += w;
      for (int i = 0; i < kHead; ++i) out[static_cast<std::size_t>(i)] += w == 0 ? 0 : w * v.at(key, i);
    }
    CHECK(static_cast<double>(top[row]) == doctest::Approx(most).epsilon(1e-5));
    CHECK(static_cast<double>(sum[row]) == doctest::Approx(total).epsilon(1e-4));
    for (int i = 0; i < kHead; ++i) {
      const double d = static_cast<double>(o[row][i]) - out[static_cast<std::size_t>(i)];
      difference += d * d, norm += out[static_cast<std::size_t>(i)] * out[static_cast<std::size_t>(i)];
    }
    CHECK(std::sqrt(difference / norm) < (std::is_same_v<Element, Half> ? 1e-3 : 6e-3));
  }
}

}  // namespace

TEST_CASE("sixteen rows: online softmax over batches of keys, masked and not") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const double spread =
        std::array{0.3, 3.0, 0.0, 40.0}[seed % 4];  // maxima that rise little, much, not, steeply
    check_rows<BFloat16, BFloat16, 128, 16>(seed, spread);
    check_rows<Half, Half, 64, 16>(seed, spread);
    check_rows<BFloat16, BFloat16, 128, 16, SharedQueries<128>>(seed, spread);
    check_rows<BFloat16, Float8E4M3, 128, 16, SharedQueries<128>>(seed, spread);
    check_rows<Half, Half, 128, 32>(seed, spread);
    check_rows<BFloat16, BFloat16, 64, 64>(seed, spread);
    check_rows<BFloat16, Float8E4M3, 128, 16>(seed, spread);
    check_rows<Half, Float8E4M3, 64, 16>(seed, spread);
    check_rows<Half, Float8E4M3, 128, 64>(seed, spread);
    check_rows<BFloat16, Float8E4M3, 64, 32>(seed, spread);
  }
}
