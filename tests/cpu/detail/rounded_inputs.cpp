// SPDX-License-Identifier: MIT
// labels: vectorised
// Inputs rounded to integers: the same bits on all instructions, errors, sums, order, and values that are not
// finite.
#include <specula/cpu/detail/rounded_inputs.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "random.hpp"

namespace {

using namespace specula::cpu;
using namespace specula::cpu::detail;
using specula::Isa;
using specula_test::Random;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInfinity = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();

std::vector<Isa> isas() {
  std::vector<Isa> out{Isa::portable};
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    if (specula::supported(isa)) out.push_back(isa);
  return out;
}

/// `columns` inputs of `depth` values, each followed by garbage.
struct Inputs3 {
  std::int32_t columns, depth, most;
  std::ptrdiff_t ldx;
  std::vector<float> x;

  Inputs3(std::int32_t n, std::int32_t d, std::int32_t m, Random& random)
      : columns(n), depth(d), most(m), ldx(d + 40) {
    x.assign(static_cast<std::size_t>(n * ldx), kNaN);
    for (std::size_t i = 0; i < x.size(); i += 3) x[i] = kMax;
    for (std::int32_t c = 0; c < n; ++c)
      for (std::int32_t k = 0; k < d; ++k) at(c, k) = static_cast<float>(random.between(-1, 1));
  }
  float& at(std::int32_t c, std::int32_t k) { return x[static_cast<std::size_t>(c * ldx + k)]; }
  std::int32_t groups() const { return (depth + kGroup - 1) / kGroup; }
};

/// What RoundedInputs made of them, input by input.
struct Rounded {
  std::int32_t groups;
  std::vector<int> numbers;  // (columns, groups, 32)
  std::vector<float> step, total;
  std::vector<std::int32_t> minus;  // (columns, groups, 3)
  std::vector<std::uint32_t> pairs, bytes;

  int number(std::int32_t c, std::int32_t k) const {
    return numbers[static_cast<std::size_t>(c * groups * kGroup + k)];
  }
  std::size_t at(std::int32_t c, std::int32_t k) const {
    return static_cast<std::size_t>(c * groups + k / kGroup);
  }
  friend bool operator==(const Rounded& a, const Rounded& b) {
    const auto bits = [](const auto& u, const auto& v) {
      return u.size() == v.size() && std::memcmp(u.data(), v.data(), u.size() * sizeof u[0]) == 0;
    };
    return a.numbers == b.numbers && bits(a.step, b.step) && bits(a.total, b.total) && a.minus == b.minus &&
           a.pairs == b.pairs && a.bytes == b.bytes;
  }
};

Rounded round(const Inputs3& in, Isa isa, bool to_bytes) {
  RoundedInputs rounded(in.columns + 3, in.depth + 50);
  rounded.round(isa, to_bytes, in.x.data(), in.ldx, in.depth, in.columns, in.most);
  Rounded out{in.groups(), {}, {}, {}, {}, {}, {}};
  for_column_groups(in.columns, in.most, [&](std::int32_t first, std::int32_t n) {
    const RoundedColumns columns = rounded.columns(first);
    for (std::int32_t c = 0; c < n; ++c)
      for (std::int32_t g = 0; g < in.groups(); ++g) {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(g) * n + c;
        const std::uint32_t *const pairs = columns.pairs + at * kPairs, *const bytes =
                                                                            columns.bytes + at * kPairs / 2;
        for (int k = 0; k < kGroup; ++k) {  // pair 4 j + f: columns 8 j + f and 8 j + f + 4
          const int j = k / 8, f = k % 4;
          out.numbers.push_back(static_cast<std::int16_t>(pairs[4 * j + f] >> (k % 8 < 4 ? 0 : 16) & 0xffff));
        }
        out.step.push_back(columns.step[at]), out.total.push_back(columns.total[at]);
        for (int i = 0; i < 3; ++i)
          out.minus.push_back(columns.minus[(static_cast<std::ptrdiff_t>(g) * 3 + i) * n + c]);
        out.pairs.insert(out.pairs.end(), pairs, pairs + kPairs);
        if (to_bytes) out.bytes.insert(out.bytes.end(), bytes, bytes + kPairs / 2);
      }
  });
  return out;
}

/// All that the header says of finite inputs.
void is_right(Inputs3& in, const Rounded& got, bool to_bytes) {
  const int top = to_bytes ? 127 : 32512;
  int wrong = 0;
  for (std::int32_t c = 0; c < in.columns; ++c)
    for (std::int32_t g = 0; g < in.groups(); ++g) {
      const std::int32_t first = g * kGroup;
      const std::size_t at = got.at(c, first);
      const std::int32_t end = std::min(in.depth, first + kGroup);
      float largest = 0;
      int most = 0, sums[2] = {};
      for (std::int32_t k = first; k < end; ++k) largest = std::max(largest, std::abs(in.at(c, k)));
      const bool zeros = largest < 0x1p-110f;
      wrong += got.step[at] != (zeros ? 0 : largest / static_cast<float>(top));
      for (std::int32_t k = first; k < first + kGroup; ++k) {
        const int number = got.number(c, k);
        most = std::max(most, std::abs(number)), sums[k % kGroup / 16] += number;
        const double step = static_cast<double>(got.step[at]),
                     x = k < end ? static_cast<double>(in.at(c, k)) : 0;
        // 32512 * 2^-23: what the rounding of the inverse and of the product adds.
        if (!zeros) wrong += std::abs(x - step * number) > step * (0.5 + top * 0x1p-22);
        if (zeros || k >= end) wrong += number != 0;
        if (to_bytes) {
          const int i = k % kGroup, j = i / 8, f = i % 2;  // word 2 j + f: columns 8 j + f + {0, 2, 4, 6}
          const std::uint32_t word = got.bytes[at * 8 + static_cast<std::size_t>(2 * j + f)];
          wrong += static_cast<std::int8_t>(word >> 8 * (i % 8 / 2) & 255) != number;
        }
      }
      wrong += most != (zeros ? 0 : top);
      wrong += got.minus[3 * at] != -(sums[0] + sums[1]);
      wrong += got.minus[3 * at + 1] != -sums[0] || got.minus[3 * at + 2] != -sums[1];
      wrong += got.total[at] != got.step[at] * static_cast<float>(sums[0] + sums[1]);
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE(
    "integers of 16 or 8 bits, the same on all instructions: steps, sums, order, at most half a step off") {
  Random random(1);
  for (const std::int32_t depth : {1, 31, 32, 33, 64, 95, 100})
    for (const std::int32_t columns : {1, 2, 5, 9}) {
      Inputs3 in(columns, depth, columns == 9 ? 4 : 6, random);
      for (std::int32_t c = 0; c < columns; ++c) {  // groups of very different sizes
        const float by = std::ldexp(1.0f, random.below(80) - 40);
        for (std::int32_t k = 0; k < depth; ++k) in.at(c, k) *= k < 40 ? by : 1;
      }
      for (const bool to_bytes : {false, true}) {
        CAPTURE(depth);
        CAPTURE(columns);
        CAPTURE(to_bytes);
        const Rounded want = round(in, Isa::portable, to_bytes);
        is_right(in, want, to_bytes);
        for (const Isa isa : isas()) CHECK(round(in, isa, to_bytes) == want);
      }
    }
}

TEST_CASE("ties go to even numbers") {
  Random random(2);
  for (const bool to_bytes : {false, true}) {
    Inputs3 in(2, 32, 6, random);
    const float top = to_bytes ? 127.0f : 32512.0f, step = 0x1p-20f;
    for (std::int32_t k = 0; k < 32; ++k)
      for (std::int32_t c = 0; c < 2; ++c)
        in.at(c, k) = (k == 3 ? top : static_cast<float>(k) - 15.5f) * step * (c == 0 ? 1.0f : -1.0f);
    const Rounded want = round(in, Isa::portable, to_bytes);
    is_right(in, want, to_bytes);
    for (std::int32_t k = 0; k < 32; ++k) {
      if (k == 3) continue;
      CHECK(want.number(0, k) % 2 == 0);
      CHECK(want.number(1, k) == -want.number(0, k));
    }
    for (const Isa isa : isas()) CHECK(round(in, isa, to_bytes) == want);
  }
}

TEST_CASE("zeros, tiny and huge values") {
  Random random(3);
  constexpr float kLeast = 0x1p-110f;
  const float below = std::nextafter(kLeast, 0.0f), subnormal = std::numeric_limits<float>::denorm_min();
  for (const float largest : {0.0f, -0.0f, subnormal, 0x1p-127f, below, -below, kLeast, -kLeast,
                              std::nextafter(kLeast, 1.0f), 0x1p-100f, 1.0f, 0x1p126f, -kMax, kMax})
    for (const bool others : {false, true})
      for (const bool to_bytes : {false, true}) {
        CAPTURE(largest);
        CAPTURE(others);
        Inputs3 in(3, 64, 6, random);
        for (std::int32_t k = 0; k < 32; ++k) {
          in.at(1, k) = others ? largest * static_cast<float>(random.between(-1, 1)) : 0.0f;
          if (k % 5 == 0) in.at(1, k) = others ? subnormal : -0.0f;
        }
        in.at(1, random.below(32)) = largest;
        const Rounded want = round(in, Isa::portable, to_bytes);
        is_right(in, want, to_bytes);
        if (std::abs(largest) < kLeast) CHECK(want.step[2] == 0);
        for (const Isa isa : isas()) CHECK(round(in, isa, to_bytes) == want);
      }
}

TEST_CASE("a group with infinity or NaN has a step of NaN, and no other group") {
  Random random(4);
  for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity, std::bit_cast<float>(0x7f800001u),
                          std::bit_cast<float>(0xffffffffu)})
    for (const bool to_bytes : {false, true})
      for (std::int32_t k = 0; k < 45; ++k) {
        Inputs3 in(3, 45, 6, random);
        const Rounded before = round(in, Isa::portable, to_bytes);
        if (k % 3 == 0) std::fill_n(&in.at(1, k / 32 * 32), k < 32 ? 32 : 13, 0.0f);
        in.at(1, k) = bad;
        const Rounded want = round(in, Isa::portable, to_bytes);
        bool right = true;
        for (std::int32_t c = 0; c < 3; ++c)
          for (const std::int32_t g : {0, 1}) {
            const std::size_t at = want.at(c, g * kGroup);
            if (c == 1 && g == k / kGroup) {
              right = right && std::isnan(want.step[at]) && std::isnan(want.total[at]);
              for (std::int32_t i = 0; i < kGroup; ++i) right = right && want.number(c, g * kGroup + i) == 0;
            } else {
              right = right && want.step[at] == before.step[at] && want.total[at] == before.total[at];
              for (std::int32_t i = g * kGroup; i < (g + 1) * kGroup; ++i)
                right = right && want.number(c, i) == before.number(c, i);
            }
          }
        for (const Isa isa : isas()) right = right && round(in, isa, to_bytes) == want;
        CAPTURE(bad);
        CAPTURE(k);
        CHECK(right);
      }
}

#if SPECULA_X86

TEST_CASE(
    "tiles have the same numbers, as two of bfloat16, and zeros in place of inputs that are not there") {
  if (!specula::supported(Isa::avx2)) return;
  Random random(6);
  RoundedInputs tiles(29, 100, true);
  for (const std::int32_t depth : {100, 32, 33})
    for (const std::int32_t columns : {29, 1, 7, 15, 16, 17}) {  // fewer than before, and more
      Inputs3 in(columns, depth, 8, random);
      in.at(0, 0) = 1, in.at(0, 1) = -1;  // the ends of the range
      if (columns > 1) in.at(1, depth - 1) = kNaN;
      const Rounded want = round(in, Isa::portable, false);
      tiles.round_to_tiles(in.x.data(), in.ldx, depth, columns);
      int wrong = 0;
      for (std::int32_t c = 0; c < round_up(columns, kTileInputs); ++c) {
        const TileColumns got = tiles.tile_columns(c / kTileInputs * kTileInputs);
        for (std::int32_t g = 0; g < in.groups(); ++g) {
          const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(g) * kTileInputs + c % kTileInputs;
          for (std::int32_t k = 0; k < kGroup; ++k) {
            const std::ptrdiff_t place =
                g * 1024 + c % kTileInputs * 32 + 2 * (k / 8 * 4 + k % 4) + k % 8 / 4;
            const float high = bf16_half<float>(got.numbers[place], false),
                        low = bf16_half<float>(got.numbers[place + 512], false);
            const int number = c < columns ? want.number(c, g * kGroup + k) : 0;
            wrong += high + low != static_cast<float>(number) || std::fmod(high, 256.0f) != 0 ||
                     std::abs(high) > 32512 || low < -128 || low > 127;
          }
          const std::size_t column_group = static_cast<std::size_t>(c * in.groups() + g);
          const float step = c < columns ? want.step[column_group] : 0,
                      total = c < columns ? want.total[column_group] : 0;
          wrong += std::memcmp(&got.step[at], &step, sizeof step) != 0;
          wrong += std::memcmp(&got.total[at], &total, sizeof total) != 0;
        }
      }
      CAPTURE(depth);
      CAPTURE(columns);
      CHECK(wrong == 0);
    }
}

#endif

TEST_CASE("what was rounded before leaves nothing") {
  Random random(5);
  Inputs3 large(9, 100, 4, random), few(2, 33, 4, random);
  RoundedInputs reused(9, 100), fresh(2, 33);
  reused.round(Isa::portable, true, large.x.data(), large.ldx, 100, 9, 4);
  reused.round(Isa::portable, true, few.x.data(), few.ldx, 33, 2, 4);
  fresh.round(Isa::portable, true, few.x.data(), few.ldx, 33, 2, 4);
  const RoundedColumns a = reused.columns(0), b = fresh.columns(0);
  CHECK(std::equal(a.pairs, a.pairs + 2 * 2 * 16, b.pairs));
  CHECK(std::equal(a.bytes, a.bytes + 2 * 2 * 8, b.bytes));
  CHECK(std::equal(a.step, a.step + 4, b.step));
  CHECK(std::equal(a.total, a.total + 4, b.total));
  CHECK(std::equal(a.minus, a.minus + 12, b.minus));
}
