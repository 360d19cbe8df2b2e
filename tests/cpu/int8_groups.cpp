// SPDX-License-Identifier: MIT
// Weights at 8 bits in groups with a power of two: decoding, rounding to the better of two scales, and exact
// round trips.
#include <specula/cpu/int8_groups.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/files/gguf_blocks.hpp>

namespace {

using namespace specula::cpu;
using namespace specula::files;

struct Rounded {
  std::vector<std::int8_t> numbers, exponents;
  std::vector<float> values;
};

Rounded round(const std::vector<float>& row) {
  Rounded out{
      std::vector<std::int8_t>(row.size()), std::vector<std::int8_t>(Int8Groups::count(row.size())), {}};
  round_to_groups(row, out.numbers, out.exponents);
  out.values.assign(out.numbers.begin(), out.numbers.end());
  scale_groups(out.values, out.exponents);
  return out;
}

double squared_error(const std::vector<float>& row, std::size_t first, std::size_t end, int e) {
  double sum = 0;
  for (std::size_t c = first; c < end; ++c) {
    double q = std::round(row[c] / std::pow(2.0, e));  // ties are rare enough to ignore
    q = std::min(127.0, std::max(-127.0, q));
    sum += std::pow(row[c] - q * std::pow(2.0, e), 2);
  }
  return sum;
}

}  // namespace

TEST_CASE("a group is a power of two") {
  std::vector<float> row(70);
  for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(static_cast<int>(c) % 255 - 127);
  const std::vector<float> q = row;
  const std::vector<std::int8_t> exponents{-24, 15, 0};
  scale_groups(row, exponents);
  for (std::size_t c = 0; c < row.size(); ++c)
    CHECK(static_cast<double>(row[c]) == static_cast<double>(q[c]) * std::pow(2.0, exponents[c / 32]));
}

TEST_CASE("errors name values out of range") {
  const auto error_of = [](std::vector<float> row, std::vector<std::int8_t> exponents) {
    try {
      scale_groups(row, exponents);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  std::vector<float> row(40, 1.0f);
  CHECK(error_of(row, {-24, 15}) == "no error");
  CHECK(error_of(row, {-25, 0}) == "group 0: exponent -25, must be in [-24, 15]");
  CHECK(error_of(row, {0, 16}) == "group 1: exponent 16, must be in [-24, 15]");
  row[33] = -128;
  CHECK(error_of(row, {0, 0}) == "column 33: -128, must be in [-127, 127]");
}

TEST_CASE("rounding takes the better of two scales, and keeps representable weights") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> row(1 + random() % 100);
    const float scale = std::ldexp(1.0f, static_cast<int>(random() % 20) - 12);
    for (float& weight : row) weight = scale * normal(random);
    const Rounded once = round(row);
    for (std::size_t g = 0; g < once.exponents.size(); ++g) {
      const std::size_t first = g * 32, end = std::min(row.size(), first + 32);
      const int e = once.exponents[g];
      double taken = 0;
      for (std::size_t c = first; c < end; ++c)
        taken += std::pow(static_cast<double>(row[c]) - static_cast<double>(once.values[c]), 2);
      // No other power of two does better.
      for (int other = e - 3; other <= e + 3; ++other)
        CHECK(taken <= squared_error(row, first, end, other) * (1 + 1e-9) + 1e-30);
    }
    // Rounding again changes nothing.
    CHECK(round(once.values).values == once.values);
  }
}

TEST_CASE("edge cases: zeros, the smallest step, the largest weight, and weights that cannot be stored") {
  CHECK(round(std::vector<float>(33, 0.0f)).values == std::vector<float>(33, 0.0f));
  CHECK(round({0x1p-24f, 0x1p-26f, -127 * 0x1p-24f}).values ==
        std::vector<float>{0x1p-24f, 0.0f, -127 * 0x1p-24f});
  CHECK(round({127 * 0x1p15f, -0x1p15f}).values == std::vector<float>{127 * 0x1p15f, -0x1p15f});
  CHECK(round(std::vector<float>{}).exponents.empty());
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float bad : {128 * 0x1p15f, infinite, -infinite, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> row(40, 1.0f);
    row[35] = bad;
    CHECK_THROWS_WITH_AS(round(row), doctest::Contains("column 35: "), std::invalid_argument);
  }
}

TEST_CASE("bfloat16 holds every weight") {
  for (int q = -127; q <= 127; ++q)
    for (int e = Int8Groups::kMinExponent; e <= Int8Groups::kMaxExponent; ++e) {
      std::vector<float> weight{static_cast<float>(q)};
      scale_groups(weight, std::vector<std::int8_t>{static_cast<std::int8_t>(e)});
      std::uint32_t bits = 0;
      std::memcpy(&bits, weight.data(), 4);
      CHECK((bits & 0xffffu) == 0);
    }
}

TEST_CASE("as blocks of Q8_0, exact for every number and exponent; a last group is filled with zeros") {
  std::vector<std::int8_t> numbers, exponents;
  for (int e = Int8Groups::kMinExponent; e <= Int8Groups::kMaxExponent; ++e) {
    exponents.push_back(static_cast<std::int8_t>(e));
    for (int i = 0; i < 32; ++i)
      numbers.push_back(static_cast<std::int8_t>((e + 24) * 53 % 9 * 27 - 127 + i));
  }
  numbers.resize(numbers.size() - 5);
  std::vector<std::byte> blocks(34 * exponents.size(), std::byte{77});
  groups_to_blocks(numbers, exponents, blocks);
  std::vector<float> got(32 * exponents.size()), want(numbers.begin(), numbers.end());
  expand(GgufId::q8_0, blocks.data(), got);
  scale_groups(want, exponents);
  want.resize(got.size());
  CHECK(got == want);
  exponents[3] = 16;
  CHECK_THROWS_WITH_AS(groups_to_blocks(numbers, exponents, blocks),
                       "group 3: exponent 16, must be in [-24, 15]", std::runtime_error);
  exponents[3] = -25;
  CHECK_THROWS_WITH_AS(groups_to_blocks(numbers, exponents, blocks),
                       "group 3: exponent -25, must be in [-24, 15]", std::runtime_error);
  exponents[3] = 0, numbers[70] = -128;
  CHECK_THROWS_WITH_AS(groups_to_blocks(numbers, exponents, blocks),
                       "column 70: -128, must be in [-127, 127]", std::runtime_error);
}
