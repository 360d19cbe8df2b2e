// SPDX-License-Identifier: MIT
// 8-bit weight quantization: int8 in groups of 32, with one power-of-two scale per group.
//
// In a safetensors file such a matrix is two tensors of type I8:
//   NAME            (rows, cols)               q, from -127 to 127
//   NAME.exponents  (rows, ceil(cols / 32))    e, from -24 to 15
// Weight (r, c) is q[r][c] * 2^e[r][c / 32]. bfloat16 holds every weight exactly, and GGUF's Q8_0, whose
// scale is a half float, holds every group exactly, so every reader runs the same model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula::cpu {

/// The format of 8-bit weights: see the top of this file.
struct Int8Groups {
  static constexpr std::size_t kSize = 32;              ///< weights per group
  static constexpr int kMax = 127;                      ///< largest |q|
  static constexpr int kMinExponent = -24,              ///< the smallest power of two of a half float
      kMaxExponent = 15;                                ///< the largest
  static constexpr const char* kSuffix = ".exponents";  ///< of the name of the tensor of exponents

  /// Groups per row of `cols` weights.
  static constexpr std::size_t count(std::size_t cols) { return (cols + kSize - 1) / kSize; }
};

namespace detail {

inline void expect_exponent(std::size_t group, int exponent) {
  if (exponent < Int8Groups::kMinExponent || exponent > Int8Groups::kMaxExponent)
    throw std::runtime_error("group " + std::to_string(group) + ": exponent " + std::to_string(exponent) +
                             ", must be in [-24, 15]");
}
inline void expect_number(std::size_t column, int number) {
  if (number < -Int8Groups::kMax)
    throw std::runtime_error("column " + std::to_string(column) + ": -128, must be in [-127, 127]");
}

}  // namespace detail

/// Writes a row as blocks of GGUF's Q8_0, exactly; a last group with fewer weights is filled with zeros.
/// Requires exponents.size() == Int8Groups::count(numbers.size()) and out.size() == 34 * exponents.size().
/// Throws std::runtime_error as scale_groups(). O(numbers.size()).
inline void groups_to_blocks(std::span<const std::int8_t> numbers, std::span<const std::int8_t> exponents,
                             std::span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  for (std::size_t g = 0; g < exponents.size(); ++g) {
    detail::expect_exponent(g, exponents[g]);
    const int e = exponents[g];
    const auto half = static_cast<std::uint16_t>(e < -14 ? 1 << (e + 24) : (e + 15) << 10);  // 2^e
    std::memcpy(out.data() + 34 * g, &half, sizeof half);
    const std::size_t first = g * Int8Groups::kSize,
                      end = std::min(numbers.size(), first + Int8Groups::kSize);
    for (std::size_t c = first; c < end; ++c) {
      detail::expect_number(c, numbers[c]);
      out[34 * g + 2 + c - first] = static_cast<std::byte>(numbers[c]);
    }
  }
}

/// Dequantizes a row in place: multiplies q, given as floats, by the power of two of its group. Exact.
/// Requires exponents.size() == Int8Groups::count(row.size()). Throws std::runtime_error naming the column or
/// the group where q or its exponent is out of range.
inline void scale_groups(std::span<float> row, std::span<const std::int8_t> exponents) {
  for (std::size_t g = 0; g < exponents.size(); ++g) {
    detail::expect_exponent(g, exponents[g]);
    const float unit = std::ldexp(1.0f, exponents[g]);
    const std::size_t end = std::min(row.size(), (g + 1) * Int8Groups::kSize);
    for (std::size_t c = g * Int8Groups::kSize; c < end; ++c) {
      detail::expect_number(c, static_cast<int>(row[c]));
      row[c] *= unit;
    }
  }
}

/// Quantizes a row to q and exponents. Of the two powers of two around a group's best scale it takes the one
/// with the smaller sum of squared errors; the smaller one clips the largest weights at 127 steps. Rows from
/// scale_groups() are recovered exactly. Requires sizes as above and numbers.size() == row.size(). Throws
/// std::invalid_argument naming the column if a weight is not finite or beyond 127 * 2^15. O(cols).
inline void round_to_groups(std::span<const float> row, std::span<std::int8_t> numbers,
                            std::span<std::int8_t> exponents) {
  const auto rounded = [](float weight, int e) {
    const float steps = std::nearbyint(std::ldexp(weight, -e));
    return std::clamp(steps, -static_cast<float>(Int8Groups::kMax), static_cast<float>(Int8Groups::kMax));
  };
  for (std::size_t g = 0; g < exponents.size(); ++g) {
    const std::size_t first = g * Int8Groups::kSize;
    const auto group = row.subspan(first, std::min(Int8Groups::kSize, row.size() - first));
    float largest = 0;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const float size = std::abs(group[i]);
      if (!(size <= std::ldexp(127.0f, Int8Groups::kMaxExponent)))
        throw std::invalid_argument("column " + std::to_string(first + i) + ": " + std::to_string(group[i]) +
                                    " does not fit 8 bits, must be within 127 * 2^15");
      largest = std::max(largest, size);
    }
    const auto error = [&](int e) {
      double sum = 0;
      for (const float weight : group) {
        const double off =
            static_cast<double>(weight) - std::ldexp(static_cast<double>(rounded(weight, e)), e);
        sum += off * off;
      }
      return sum;
    };
    int e = Int8Groups::kMinExponent;
    while (std::ldexp(largest, -e) > Int8Groups::kMax) ++e;
    if (e > Int8Groups::kMinExponent && error(e - 1) < error(e)) --e;
    exponents[g] = static_cast<std::int8_t>(e);
    for (std::size_t i = 0; i < group.size(); ++i)
      numbers[first + i] = static_cast<std::int8_t>(rounded(group[i], e));
  }
}

}  // namespace specula::cpu
