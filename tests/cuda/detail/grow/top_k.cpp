// SPDX-License-Identifier: MIT
// labels: threads optimised
// Top-k of rows on the device, against the CPU's.
#include <doctest/doctest.h>
#include <specula/cuda/detail/grow/top_k.cuh>
#include <specula/distribution/row_scan.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "device_batch.hpp"
#include "emulated_gpu.hpp"
#include "random.hpp"
#include "structured_rows.hpp"
#include "thread_sanitizer.hpp"

using namespace specula_test;
using specula::cuda::detail::Row;
using specula::cuda::detail::RowScan;
using specula::cuda::detail::RowTopK;
using specula::cuda::detail::ScanSize;
using specula::cuda::detail::TopK;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Geometry {
  int blocks, threads;
};
const std::vector<Geometry> kGeometries = {{1, 32}, {1, 256}, {3, 64}, {8, 32}};

struct Found {
  device::Status status = device::Status::ok;
  std::vector<specula::Token> tokens;
  std::vector<double> probs;
  friend bool operator==(const Found&, const Found&) = default;
};

template <class Element>
Found find(const std::vector<float>& logits, int k, Geometry geometry, std::uint64_t seed, int offset = 0,
           Engine engine = Engine::fibers) {
  const int vocab = static_cast<int>(logits.size());
  std::vector<Element> row(logits.size() + static_cast<std::size_t>(offset) + 8);
  for (Element& e : row) store(std::numeric_limits<float>::max(), e);  // must not be read
  for (std::size_t i = 0; i < logits.size(); ++i) store(logits[i], row[i + static_cast<std::size_t>(offset)]);
  const ScanSize size{vocab, 1, 4096};
  Found out;
  emulate({.blocks = geometry.blocks,
           .threads = geometry.threads,
           .shared_bytes = RowTopK<EmulatedCluster>::shared_bytes(size, geometry.threads / 32, k, 0),
           .seed = seed,
           .engine = engine},
          [&](EmulatedCluster cluster, int, unsigned char* shared) {
            RowTopK<EmulatedCluster> top(cluster, size, k, 0, shared);
            const device::Status status = top.find(Row<Element>{row.data() + offset, vocab});
            if (cluster.rank() != 0) return;
            if (cluster.block().rank() == cluster.block().size() - 1) {
              out.status = status;
              for (int i = 0; i < top.found(); ++i) {
                out.tokens.push_back(top[i].token);
                out.probs.push_back(top[i].prob);
              }
            }
          });
  return out;
}

template <class Element>
void check(std::vector<float> logits, int k, std::uint64_t seed, int offset = 0) {
  const auto round = rounding(Element{});
  if (round)
    for (float& l : logits) l = round(l);
  specula::detail::RowScan scan(static_cast<std::int32_t>(logits.size()));
  std::vector<specula::Top> top(static_cast<std::size_t>(k));
  const auto count = static_cast<std::size_t>(scan.top_k(logits, top));
  Found first;
  for (const Geometry& geometry : kGeometries) {
    const Found found = find<Element>(logits, k, geometry, seed, offset);
    CAPTURE(logits.size());
    CAPTURE(k);
    CAPTURE(geometry.blocks);
    CAPTURE(geometry.threads);
    REQUIRE(found.status == device::Status::ok);
    REQUIRE(found.tokens.size() == count);
    bool same = true, near = true, falls = true;
    for (std::size_t i = 0; i < count; ++i) {
      same &= found.tokens[i] == top[i].token;
      // For larger logits the log-normaliser's error bound does not hold (distribution/row_kernels.hpp).
      near &= std::abs(logits[static_cast<std::size_t>(top[i].token)]) > 1e4f ||
              std::abs(found.probs[i] - top[i].prob) <= 1e-6 * top[i].prob;
      falls &= found.probs[i] <= 1 && (i == 0 || found.probs[i] <= found.probs[i - 1]);
    }
    CHECK(same);
    CHECK(near);
    CHECK(falls);
    if (&geometry == kGeometries.data())
      first = found;
    else
      CHECK(found == first);  // bit for bit
  }
}

}  // namespace

UNTHREADED_TEST_CASE("top-k is the CPU's, for any row, element, alignment and launch geometry") {
  Random random(81);
  for (const int vocab : {1, 2, 40, 511, 512, 513, 1500, 4100, 6000})
    for (const int k : {1, 7, 10, 32}) {
      const double ties = random.bernoulli(0.5) ? 0.8 : 0, empty = random.bernoulli(0.4) ? 0.9 : 0;
      const std::vector<float> row = mixed_row(random, vocab, 8, ties, empty, false);
      const int offset = random.below(8);
      check<float>(mixed_row(random, vocab, 8, ties, empty), k, random.bits(), offset);
      check<float>(row, k, random.bits(), offset);
      check<device::BFloat16>(row, k, random.bits(), offset);
      check<device::Half>(row, k, random.bits(), offset);
    }
}

UNTHREADED_TEST_CASE("top-k of rows with structure") {
  Random random(87);
  for (const RowKind kind : kRowKinds)
    for (const int vocab : {17, 513, 1537}) {
      CAPTURE(std::string(name_of(kind)));
      const std::vector<float> row = structured_row(kind, vocab, random);
      check<float>(row, 7, random.bits(), random.below(8));
      if (!is_large(kind)) check<device::BFloat16>(row, 10, random.bits(), random.below(8));
      if (!is_large(kind)) check<device::Half>(row, 10, random.bits(), random.below(8));
    }
}

UNTHREADED_TEST_CASE("rows of few values: ties go to the lower token, within a tile and across tiles") {
  Random random(82);
  for (int i = 0; i < 12; ++i) {
    std::vector<float> row(3000, i % 3 == 0 ? 1.0f : -kInf);
    for (float& l : row)
      if (random.bernoulli(i < 6 ? 0.01 : 0.5)) l = random.bernoulli(0.5) ? 0.0f : -0.0f;
    if (i % 3 == 1) row[2999] = 2.0f;
    row[2048] = 1.0f;
    check<float>(row, 10, random.bits());
    check<float>(row, 32, random.bits());
  }
  check<float>(std::vector<float>(2000, 3.0f), 32, 1);  // all of them
  std::vector<float> one(2000, -kInf);
  one[1999] = -1e38f;
  check<float>(one, 10, 1);
}

UNTHREADED_TEST_CASE("the k best in one tile, in k tiles, and in descending order of tiles") {
  Random random(83);
  std::vector<float> row = random.row(40 * 512, 1);
  for (int i = 0; i < 12; ++i)
    row[static_cast<std::size_t>(7 * 512 + 40 * i)] = 5.0f + static_cast<float>(i % 5);
  check<float>(row, 10, 1);
  for (std::size_t tile = 0; tile < 40; ++tile) row[tile * 512 + 511] = 10.0f - static_cast<float>(tile % 13);
  check<float>(row, 10, 2);
  check<float>(row, 32, 3);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(row.size() - i);
  check<float>(row, 32, 4);
  std::reverse(row.begin(), row.end());
  check<float>(row, 32, 5);
}

UNTHREADED_TEST_CASE("k from 0 to 64, in every block separately, two rows in turn") {
  Random random(86);
  for (int round = 0; round < 30; ++round) {
    const int vocab = 1 + random.below(round % 3 == 0 ? 60 : 12000);
    const int k = round % 10 == 1 ? 0 : round % 10 == 2 ? 64 : 1 + random.below(64);
    const double ties = random.bernoulli(0.5) ? 0.9 : 0, empty = random.bernoulli(0.3) ? 0.97 : 0;
    const std::vector<float> rows[] = {mixed_row(random, vocab, random.bernoulli(0.5) ? 2 : 30, ties, empty),
                                       random.row(vocab, 2, 0.9, 0.97)};
    std::vector<std::vector<int>> orders;  // everything sorted
    for (const std::vector<float>& row : rows) {
      std::vector<int> order;
      for (int x = 0; x < vocab; ++x)
        if (row[static_cast<std::size_t>(x)] > -kInf) order.push_back(x);
      std::sort(order.begin(), order.end(), [&](int a, int b) {
        const float x = row[static_cast<std::size_t>(a)], y = row[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
      });
      order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
      orders.push_back(order);
    }
    using Top = TopK<EmulatedBlock>;
    using Scan = RowScan<EmulatedCluster>;
    const int warps = 1 + random.below(6);
    const ScanSize size{vocab, 1, 4096};
    const Grid grid{.blocks = 1 + random.below(3),
                    .threads = 32 * warps,
                    .shared_bytes = Top::shared_bytes(vocab, k) + Scan::shared_bytes(size, warps),
                    .seed = random.bits()};
    int right = 0;
    emulate(grid, [&](EmulatedCluster cluster, int, unsigned char* shared) {
      Scan scan(cluster, size, shared + Top::shared_bytes(vocab, k));
      Top top(cluster.block(), vocab, k, 0, shared);
      for (std::size_t r = 0; r < 2; ++r) {
        const std::vector<int>& order = orders[r];
        const Row<float> row{rows[r].data(), vocab};
        scan.distribution(row, {});
        top.find(row, scan.table());
        bool same = top.found() == static_cast<int>(order.size());
        for (int i = 0; same && i < top.found(); ++i)
          same = top.token(i) == order[static_cast<std::size_t>(i)] &&
                 top.logit(i) == rows[r][static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
        right += same;  // fibers: one at a time
        cluster.sync();
      }
    });
    CHECK(right == 2 * grid.blocks * grid.threads);
  }
}

UNTHREADED_TEST_CASE("rows that are not valid logits") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Random random(84);
  for (const Geometry& geometry : kGeometries) {
    for (const float bad : {nan, kInf}) {
      std::vector<float> row = random.row(1700, 4);
      row[1600] = bad;
      const Found found = find<float>(row, 10, geometry, 1);
      CHECK(found.status == device::Status::not_a_number);
      CHECK(found.tokens.empty());
    }
    const Found none = find<float>(std::vector<float>(1700, -kInf), 10, geometry, 1);
    CHECK(none.status == device::Status::empty_row);
    CHECK(none.tokens.empty());
    CHECK(find<float>(std::vector<float>(1700, 3e38f), 10, geometry, 1).status == device::Status::overflow);
  }
}

TEST_CASE("concurrent threads") {
  Random random(85);
  const std::vector<float> row = random.row(1700, 6, 0.5);
  const Found found = find<float>(row, 10, {2, 64}, 1, 0, Engine::threads);
  CHECK(found == find<float>(row, 10, {1, 32}, 1));
}
