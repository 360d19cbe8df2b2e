// SPDX-License-Identifier: MIT
// Layout of tree attention: packed rows, masks, windows, splits of the keys, merging of partial softmaxes.

#include <doctest/doctest.h>
#include <specula/cuda/detail/attention/attention_layout.cuh>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "random.hpp"

using namespace specula_test;
using namespace specula::cuda::detail;

TEST_CASE("packed rows: all heads of a node, then the next node") {
  for (const int group : {1, 2, 3, 4, 7, 8})
    for (int row = 0; row < 200; ++row) {
      const PackedRow at = packed_row(row, Divisor(static_cast<std::uint32_t>(group)));
      CHECK(at.node * group + at.head == row);
      CHECK(at.head >= 0);
      CHECK(at.head < group);
    }
}

TEST_CASE("with a window: keys that no row sees, and keys that all rows see") {
  // The definition, key by key over all nodes.
  Random random(2);
  for (int trial = 0; trial < 3000; ++trial) {
    const int prefix = random.below(100), nodes = 1 + random.below(5), window = random.below(60);
    std::vector<int> position;
    int low = 1 << 30, high = -low;
    for (int n = 0; n < nodes; ++n) {
      position.push_back(random.below(160) - 10);
      low = std::min(low, position.back()), high = std::max(high, position.back());
    }
    const KeyRange keys = key_range(prefix, prefix + nodes, window, low, high);
    CHECK(keys.prefix == prefix);
    CHECK(keys.end == prefix + nodes);
    CHECK(keys.load <= keys.clear);
    CHECK(keys.clear <= prefix);
    for (int j = 0; j < prefix; ++j) {
      bool any = false, all = true;
      for (const int p : position) {
        const bool sees = window == 0 || p - j < window;
        any = any || sees, all = all && sees;
      }
      CHECK(any == (j >= keys.load));
      CHECK(all == (j >= keys.clear));
    }
  }
  const KeyRange far = key_range(0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, -0x7FFFFFFF, 0x7FFFFFFF);
  CHECK(far.load == 0);
  CHECK(far.clear == 1);
  const KeyRange none = key_range(10, 12, 1, 1 << 30, 1 << 30);
  CHECK(none.load == 10);
  CHECK(none.clear == 10);
}

TEST_CASE("masks of 64 keys at once agree with masks of single keys") {
  Random random(3);
  for (int trial = 0; trial < 20000; ++trial) {
    const int prefix = random.below(150), nodes = random.below(200), words = random.below(5);
    const int window = random.bernoulli(0.5) ? 0 : 1 + random.below(100),
              end = prefix + random.below(nodes + 1);
    std::vector<std::uint64_t> mask(static_cast<std::size_t>(words) + 1);
    for (auto& w : mask) w = random.bits() | (random.bernoulli(0.3) ? ~std::uint64_t{0} : 0);
    std::vector<std::int32_t> position(static_cast<std::size_t>(nodes) + 1);
    const bool depth = random.bernoulli(0.5);
    for (auto& p : position) p = (depth ? 0 : prefix) + random.below(80);
    RowView row{mask.data(), position.data(), words, prefix + random.below(100), depth ? prefix : 0, window};
    const KeyRange keys{random.below(prefix + 1), 0, prefix, end};
    const int key = random.below(400);
    const std::uint64_t got = row.sees(key, keys);
    for (int i = 0; i < 64; ++i) {
      const int j = key + i, n = j - prefix;
      bool want = j >= keys.load && j < end;
      if (n >= 0 && want)
        want = n / 64 < words && (mask[static_cast<std::size_t>(n / 64)] >> (n % 64) & 1) != 0;
      if (window > 0 && want)
        want = row.at - (n < 0 ? j : row.origin + position[static_cast<std::size_t>(n)]) < window;
      CHECK_MESSAGE((got >> i & 1) == static_cast<std::uint64_t>(want), trial);
    }
  }
  // No tail: neither mask nor positions are read.
  const RowView cross{nullptr, nullptr, 0, 50, 0, 20};
  CHECK(cross.sees(0, {0, 0, 40, 40}) == (bits_below(40) & ~bits_below(31)));
  const RowView plain{nullptr, nullptr, 0, 0, 0, 0};
  CHECK(plain.sees(64, {0, 0, 100, 100}) == bits_below(36));
  CHECK(plain.sees(128, {0, 0, 100, 100}) == 0);
}

TEST_CASE("scores: plain and capped, as exponents of 2") {
  Random random(4);
  for (int trial = 0; trial < 2000; ++trial) {
    const double scale = random.between(-0.5, 0.5), cap = random.between(0.5, 60);
    const ScoreMap plain(static_cast<float>(scale), 0),
        capped(static_cast<float>(scale), static_cast<float>(cap));
    CHECK(plain.cap == 0);
    const auto s = static_cast<float>(random.between(-300, 300));
    const double want = scale * static_cast<double>(s) * kLog2E;
    CHECK(static_cast<double>(plain.plain(s)) == doctest::Approx(want).epsilon(1e-6));
    const double tanh = cap * std::tanh(scale * static_cast<double>(s) / cap) * kLog2E;
    CHECK(std::fabs(static_cast<double>(capped.capped(s)) - tanh) <= 1e-6 * cap * kLog2E);
  }
  const ScoreMap capped(1, 20);
  const auto limit = static_cast<float>(20 * kLog2E);
  CHECK(capped.capped(1e30f) == limit);
  CHECK(capped.capped(-1e30f) == -limit);
  CHECK(is_nan(capped.capped(std::numeric_limits<float>::quiet_NaN())));
}

namespace {

Part merge(const std::vector<Part>& parts) {
  return merge_parts(
      static_cast<int>(parts.size()), [&](int i) { return parts[static_cast<std::size_t>(i)].maximum; },
      [&](int i) { return parts[static_cast<std::size_t>(i)]; });
}

}  // namespace

TEST_CASE("partial softmaxes merge in any grouping") {
  Random random(5);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<Part> parts;
    double top = -1e300, sum = 0, o[4] = {};
    for (int i = 1 + random.below(8); i > 0; --i) {
      Part p{static_cast<float>(random.between(-300, 300)), static_cast<float>(random.between(0, 9)), {}};
      if (random.bernoulli(0.3)) p = {kLowest, 0, {}};  // a part without a visible key
      for (float& x : p.o) x = p.sum > 0 ? static_cast<float>(random.between(-5, 5)) : 0;
      parts.push_back(p);
      if (p.sum > 0) top = std::max(top, static_cast<double>(p.maximum));
    }
    for (const Part& p : parts) {
      if (p.sum == 0) continue;
      const double w = std::exp2(static_cast<double>(p.maximum) - top);
      sum += w * static_cast<double>(p.sum);
      for (int c = 0; c < 4; ++c) o[c] += w * static_cast<double>(p.o[c]);
    }
    const Part all = merge(parts);
    if (sum == 0) {
      CHECK(all.sum == 0);
      continue;
    }
    CHECK(static_cast<double>(all.maximum) == doctest::Approx(top));
    CHECK(static_cast<double>(all.sum) == doctest::Approx(sum).epsilon(1e-5));
    for (int c = 0; c < 4; ++c) CHECK(std::fabs(static_cast<double>(all.o[c]) - o[c]) < 1e-4);
    // A single part is unchanged.
    const Part one = merge({parts[0]});
    CHECK(one.maximum == parts[0].maximum);
    CHECK(one.sum == parts[0].sum);
    CHECK(one.o[3] == parts[0].o[3]);
  }
  const Part none = merge({});
  CHECK(none.sum == 0);
  CHECK(none.maximum == kLowest);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(is_nan(merge({{1, 1, {0, 0, 0, 0}}, {0, nan, {0, nan, 0, 0}}}).sum));
}

TEST_CASE("splits cover all tiles once, in order, none of them empty") {
  for (int tiles = 0; tiles < 70; ++tiles)
    for (int most = 1; most < 20; ++most)
      for (const int fixed : {0, 1, 3, 32})
        for (const int least : {1, 4}) {
          const Splits s = split_tiles(tiles, most, fixed, least);
          CHECK(s.used >= 1);
          CHECK(s.used <= most);
          int at = 0;
          for (int i = 0; i < s.used; ++i) {
            CHECK(s.begin(i) == at);
            CHECK((s.end(i, tiles) > at || tiles == 0));
            at = s.end(i, tiles);
            if (fixed > 0 && i + 1 < s.used) CHECK(s.end(i, tiles) - s.begin(i) == fixed);
            if (fixed == 0 && s.used > 1 && i + 1 < s.used) CHECK(s.end(i, tiles) - s.begin(i) >= least);
          }
          CHECK(at == tiles);
          // With a fixed length they do not depend on the largest number of splits, if it suffices.
          if (fixed > 0 && most * fixed >= tiles) {
            const Splits more = split_tiles(tiles, most + 5, fixed, least);
            CHECK(more.used == s.used);
            CHECK(more.each == s.each);
          }
          if (fixed == 0 && tiles >= most * least) CHECK(s.used >= (most + 1) / 2);
        }
}
