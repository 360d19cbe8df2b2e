// SPDX-License-Identifier: MIT
// Reads a number from text, the same in every locale and with every standard library.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Whether `text` is an integer of this type and nothing else; if so, sets `number` to it.
template <std::integral T>
bool read_number(std::string_view text, T& number) {
  const char* const end = text.data() + text.size();
  T value{};
  const auto read = std::from_chars(text.data(), end, value);
  if (text.empty() || read.ec != std::errc() || read.ptr != end) return false;
  number = value;
  return true;
}

/// Maximum bytes of a text that is read as a double: libc++ ignores the digits after 39.
inline constexpr std::size_t kMaxNumber = 32;

/// Whether `text`, of at most kMaxNumber bytes, is a decimal number, "-1", ".5" or "1e-30", and nothing else;
/// if so, sets `number` to the nearest double. One too large or too small for a normal double is none. By a
/// stream of the C locale, since libc++ before version 20 has no std::from_chars of a double.
inline bool read_number(std::string_view text, double& number) {
  if (text.size() > kMaxNumber || text.starts_with('+') ||
      text.find_first_not_of("0123456789.eE+-") != text.npos)
    return false;
  std::istringstream in{std::string(text)};
  in.imbue(std::locale::classic());
  double value = 0;
  in >> value;
  if (in.fail() || !in.eof()) return false;
  const bool zero = text.substr(0, text.find_first_of("eE")).find_first_of("123456789") == text.npos;
  if (!zero && std::abs(value) < std::numeric_limits<double>::min()) return false;
  number = value;
  return true;
}

}  // namespace specula::detail
