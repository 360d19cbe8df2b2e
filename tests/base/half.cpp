// SPDX-License-Identifier: MIT
// Half floats: every one as a float, and floats to the nearest.
#include <specula/base/half.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

using specula::detail::half_to_float;
using specula::detail::round_to_half;

TEST_CASE("a half float is its sign, exponent and fraction") {
  for (std::uint32_t bits = 0; bits < 0x8000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits), negative = static_cast<std::uint16_t>(bits | 0x8000);
    const float value = half_to_float(half);
    const int exponent = static_cast<int>(bits >> 10);
    const auto fraction = static_cast<float>(bits & 0x3ff);
    if (exponent == 31 && fraction > 0)
      REQUIRE((std::isnan(value) && std::isnan(half_to_float(negative))));
    else if (exponent == 31)
      REQUIRE((value == std::numeric_limits<float>::infinity() && half_to_float(negative) == -value));
    else
      REQUIRE(value ==
              (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25)));
    REQUIRE(std::signbit(half_to_float(negative)));
  }
}

TEST_CASE("four at a time are what each is alone") {
  for (std::uint32_t bits = 0; bits < 0x10000; bits += 4) {
    std::uint16_t halves[4];
    for (std::uint32_t i = 0; i < 4; ++i) halves[i] = static_cast<std::uint16_t>(bits + i);
    float floats[4];
    specula::detail::four_halves_to_floats(halves, floats);
    for (int i = 0; i < 4; ++i)
      REQUIRE(std::bit_cast<std::uint32_t>(floats[i]) ==
              std::bit_cast<std::uint32_t>(half_to_float(halves[i])));
  }
}

TEST_CASE("the nearest half float, ties to even") {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {  // all finite ones, and the middles between
    const float value = half_to_float(static_cast<std::uint16_t>(bits)),
                next = bits == 0x7bff ? 65536.0f : half_to_float(static_cast<std::uint16_t>(bits + 1));
    REQUIRE(round_to_half(value) == bits);
    REQUIRE(round_to_half(-value) == (bits | 0x8000));
    const float middle = (value + next) / 2;
    REQUIRE(round_to_half(middle) == (bits % 2 ? bits + 1 : bits));
    REQUIRE(round_to_half(std::nextafter(middle, 0.0f)) == bits);
    REQUIRE(round_to_half(std::nextafter(middle, 1e6f)) == bits + 1);
  }
}

TEST_CASE("what is too large is infinity, too small zero, and NaN stays one") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(round_to_half(65519.0f) == 0x7bff);
  CHECK(round_to_half(65520.0f) == 0x7c00);
  CHECK(round_to_half(-1e30f) == 0xfc00);
  CHECK(round_to_half(kInfinity) == 0x7c00);
  CHECK(round_to_half(-kInfinity) == 0xfc00);
  CHECK(round_to_half(0x1p-25f) == 0);
  CHECK(round_to_half(0x1.8p-25f) == 1);
  CHECK(round_to_half(-std::numeric_limits<float>::denorm_min()) == 0x8000);
  for (const std::uint32_t nan : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffa55555u})
    CHECK(std::isnan(half_to_float(round_to_half(std::bit_cast<float>(nan)))));
}
