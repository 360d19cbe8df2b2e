// SPDX-License-Identifier: MIT
// Numbers from text: exact, and the same in every locale and with every standard library.
#include <specula/base/read_number.hpp>

#include <doctest/doctest.h>

#include <specula/base/fields.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "comma_locale.hpp"
#include "random.hpp"

using specula::detail::read_number;

namespace {

double read(const std::string& text) {
  double out = -7;
  CHECK_MESSAGE(read_number(text, out), text);
  return out;
}

void check_doubles() {
  CHECK(read("0") == 0);
  CHECK(std::signbit(read("-0")));
  CHECK(read("0e400") == 0);
  CHECK(read(".5") == 0.5);
  CHECK(read("5.") == 5);
  CHECK(read("-1.25E+2") == -125);
  CHECK(read("1e-30") == 1e-30);
  CHECK(read("1234567.5") == 1234567.5);
  CHECK(read("9007199254740993") == 0x1p53);  // halfway: to even
  CHECK(read("9007199254740993.000000000001") == 0x1.0000000000001p53);
  CHECK(read("2.2250738585072014e-308") == std::numeric_limits<double>::min());
  CHECK(read("1.7976931348623157e308") == std::numeric_limits<double>::max());
}

}  // namespace

TEST_CASE("a double is the nearest to its text") {
  check_doubles();
  specula_test::Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = (std::uint64_t{static_cast<std::uint32_t>(random.below(1 << 30))} << 34) ^
                      (std::uint64_t{static_cast<std::uint32_t>(random.below(1 << 30))} << 8);
    const auto value = std::bit_cast<double>(bits ^ static_cast<std::uint64_t>(random.below(256)));
    if (!std::isnormal(value)) continue;
    CHECK(read(specula::detail::number(value)) == value);
  }
}

TEST_CASE("what is no number leaves the value as it was") {
  for (const std::string text : {"",       " ",
                                 " 1",     "1 ",
                                 "+1",     "--1",
                                 "-",      ".",
                                 "e5",     "1e",
                                 "1e+",    "1.2.3",
                                 "1,5",    "1'000",
                                 "0x10",   "0x1p3",
                                 "1p3",    "nan",
                                 "inf",    "infinity",
                                 "1f",     "1e309",
                                 "-1e309", "1e-320",
                                 "1e-400", "0.1000000000000000055511151231257"}) {
    double number = -7;
    CHECK_MESSAGE(!read_number(text, number), text);
    CHECK(number == -7);
  }
}

TEST_CASE("the same in a locale with a decimal comma") {
  const specula_test::CommaLocale comma;
  check_doubles();
  double number = 0;
  CHECK(!read_number("1,5", number));
  CHECK(!read_number("1.234,5", number));
}

TEST_CASE("integers of a type's range") {
  std::int32_t number = -7;
  CHECK(read_number("-2147483648", number));
  CHECK(number == std::numeric_limits<std::int32_t>::min());
  for (const char* text : {"", "2147483648", "1.0", "1e3", "+1", " 1", "1 ", "0x1"}) {
    std::int32_t other = -7;
    CHECK_MESSAGE(!read_number(text, other), text);
    CHECK(other == -7);
  }
  std::uint16_t port = 0;
  CHECK(!read_number("-1", port));
  CHECK(!read_number("65536", port));
  CHECK(read_number("65535", port));
}
