// SPDX-License-Identifier: MIT
// labels: optimised
// Truncation of 16-bit rows by counting keys, several rows at once: the CPU's thresholds, for any launch; and
// when the histograms are used instead.
#include <doctest/doctest.h>
#include <specula/cuda/detail/verify/row_scan.cuh>

#include <specula/distribution/row_scan.hpp>

#include <algorithm>
#include <cmath>

#include "device_batch.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula_test;
using namespace specula::cuda::detail;

namespace {

struct Truncations {
  std::vector<device::RowStats> distributions;
  int counted = 0;  // rows truncated by their keys alone
};

template <class Element>
Truncations truncation_of(const std::vector<std::vector<float>>& rows, const SamplingParams& p, int blocks,
                          int warps, int ring_bytes, std::uint64_t seed) {
  const int vocab = static_cast<int>(rows[0].size()), count = static_cast<int>(rows.size());
  std::vector<std::vector<Element>> data(rows.size());
  // Some rows are not aligned, some passes are without such rows.
  const auto gap = [&](std::size_t r) { return vocab % 8 == 0 && count != 2 ? 0 : r; };
  for (std::size_t r = 0; r < rows.size(); ++r) {
    data[r].resize(gap(r));
    for (const float x : rows[r]) store(x, data[r].emplace_back());
  }
  const device::SamplingParams params{p.temperature, p.top_k, p.top_p, p.min_p};
  const ScanSize size{vocab, count, ring_bytes};
  Truncations out;
  emulate({.blocks = blocks,
           .threads = 32 * warps,
           .shared_bytes = RowScan<EmulatedCluster>::shared_bytes(size, warps),
           .seed = seed},
          [&](EmulatedCluster cluster, int, unsigned char* shared) {
            RowScan<EmulatedCluster> scan(cluster, size, shared);
            const auto row_of = [&](int r) {
              const auto at = static_cast<std::size_t>(r);
              return Row<Element>{data[at].data() + gap(at), vocab};
            };
            scan.template read<Element>(
                count, row_of, params, false, [] {}, [](int) {});
            cluster.block().sync();
            scan.template truncate<Element>(count, row_of, params);
            cluster.block().sync();
            if (cluster.rank() != blocks - 1 || cluster.block().rank() != 32 * warps - 1) return;
            for (int r = 0; r < count; ++r) {
              out.distributions.push_back(scan.facts(r).distribution);
              out.counted += scan.facts(r).truncation_is_done;
            }
          });
  return out;
}

/// Checks rows of one element type against the CPU; counts the rows that were truncated by their keys alone.
template <class Element>
int check(std::vector<std::vector<float>> rows, const SamplingParams& p, Random& random) {
  const auto round = rounding(Element{});
  for (std::vector<float>& row : rows)
    for (float& x : row) x = round(x);
  specula::detail::RowScan scan(static_cast<std::int32_t>(rows[0].size()));
  const Truncations first = truncation_of<Element>(rows, p, 1, 1, 4096, random.bits());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    CAPTURE(r);
    const Distribution want = scan.distribution(rows[r], p);
    REQUIRE(first.distributions[r].status == device::Status::ok);
    CHECK(first.distributions[r].min_logit == want.min_logit);
    CHECK(first.distributions[r].log_z == doctest::Approx(want.log_z).epsilon(1e-6));
  }
  for (const int blocks : {1, 3}) {
    const Truncations other =
        truncation_of<Element>(rows, p, blocks, 1 + random.below(4), 8192, random.bits());
    CHECK(other.counted == first.counted);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      CHECK(other.distributions[r].min_logit == first.distributions[r].min_logit);
      CHECK(other.distributions[r].log_z == first.distributions[r].log_z);  // bit for bit
    }
  }
  return first.counted;
}

const SamplingParams kSettings[] = {{.top_p = 0.95f},
                                    {.temperature = 0.7f, .top_p = 0.5f},
                                    {.top_k = 40},
                                    {.top_k = 50, .top_p = 0.9f},
                                    {.temperature = 1.3f, .top_k = 5, .min_p = 0.01f},
                                    {.min_p = 0.05f},
                                    {.top_p = 0.99f, .min_p = 0.2f}};

}  // namespace

TEST_CASE("realistic rows are truncated by their keys alone, several at once") {
  Random random(501);
  int rows = 0, counted = 0;
  for (const SamplingParams& p : kSettings) {
    const int vocab = random.bernoulli(0.5) ? 1500 : 1504;  // the second is read 16 bytes at a time
    std::vector<std::vector<float>> all;
    for (int r = 0; r < 3; ++r) {
      all.push_back(random.row(vocab, 3));
      if (random.bernoulli(0.3)) random.move_tiles(all.back());
      for (float& x : all.back()) x += 20;
      if (r == 1)
        for (std::size_t x = 0; x < 1400; ++x) all.back()[x] = -std::numeric_limits<float>::infinity();
    }
    rows += 6;
    counted += check<device::BFloat16>(all, p, random) + check<device::Half>(all, p, random);
  }
  CHECK(counted == rows);
}

TEST_CASE("thresholds far below the largest key, at zeros, among negative logits") {
  Random random(502);
  int counted = 0, rows = 0;
  for (const SamplingParams& p : kSettings)
    for (const int form : {0, 1, 2, 3}) {
      std::vector<float> row(form % 2 ? 904 : 900);
      for (float& x : row)
        x = form == 0   ? static_cast<float>(random.between(-0.01, 0.01))  // keys of all sizes
            : form == 1 ? static_cast<float>(random.below(3) - 1) * 0.0f   // zeros of both signs
            : form == 2 ? static_cast<float>(random.between(-3e4, -2e4))   // large
                        : static_cast<float>(random.between(-1, 1));
      std::vector<float> other = mixed_row(random, static_cast<int>(row.size()), 4, 0, 0, false);
      counted += check<device::BFloat16>({row, other}, p, random);
      counted += check<device::Half>({other, row, other}, p, random);
      rows += 5;
    }
  CHECK(counted > rows / 10);
  CHECK(counted < rows);  // the histograms were used
}

TEST_CASE("a bad row is not truncated, the others are") {
  Random random(503);
  std::vector<std::vector<float>> rows{random.row(600, 3), random.row(600, 3), random.row(600, 3)};
  rows[1][77] = std::numeric_limits<float>::quiet_NaN();
  const Truncations got = truncation_of<device::BFloat16>(rows, {.top_p = 0.8f}, 2, 2, 8192, 3);
  CHECK(got.distributions[1].status == device::Status::not_a_number);
  for (const std::size_t r : {0, 2}) {
    CHECK(got.distributions[r].status == device::Status::ok);
    CHECK(got.distributions[r].min_logit > -90);
  }
}
