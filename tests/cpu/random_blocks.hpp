// SPDX-License-Identifier: MIT
// Rows in GGUF's blocks for tests: random ones, and what they say, weight by weight.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "random.hpp"
#include "specula/base/half.hpp"
#include "specula/files/gguf_blocks.hpp"

namespace specula_test {

/// Those that matrices keep.
inline constexpr specula::files::GgufId kBlockTypes[] = {
    specula::files::GgufId::q4_0, specula::files::GgufId::q4_1, specula::files::GgufId::q5_0,
    specula::files::GgufId::q5_1, specula::files::GgufId::q8_0, specula::files::GgufId::q4_k,
    specula::files::GgufId::q5_k, specula::files::GgufId::q6_k};

inline const specula::files::GgufType& about(specula::files::GgufId type) {
  return *specula::files::find_gguf_type(static_cast<std::uint32_t>(type));
}
inline bool is_k_type(specula::files::GgufId type) { return about(type).block == 256; }
inline bool has_minimum(specula::files::GgufId type) {
  using specula::files::GgufId;
  return type == GgufId::q4_1 || type == GgufId::q5_1 || type == GgufId::q4_k || type == GgufId::q5_k;
}
/// Where a block has the half d.
inline std::size_t place_of_d(specula::files::GgufId type) {
  return type == specula::files::GgufId::q6_k ? 208 : 0;
}

inline void put_half(std::byte* at, std::uint16_t half) {
  at[0] = static_cast<std::byte>(half & 255), at[1] = static_cast<std::byte>(half >> 8);
}
inline double half_at(const std::byte* at) {
  const int bits = std::to_integer<int>(at[0]) | std::to_integer<int>(at[1]) << 8;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  return bits & 0x8000 ? -size : size;
}

/// Random blocks of about this standard deviation, and a mean of 0. `extreme`: most numbers and scales at the
/// ends of their ranges, all of one sign now and then, and halves of any size, zeros and subnormal ones among
/// them.
inline std::vector<std::byte> random_row(specula::files::GgufId type, std::int32_t cols, Random& random,
                                         bool extreme = false, double deviation = 1) {
  using specula::files::GgufId;
  const auto size = static_cast<std::size_t>(about(type).bytes);
  std::vector<std::byte> row(static_cast<std::size_t>(cols) / about(type).block * size);
  constexpr int kEnds[] = {0, 255, 0x0f, 0xf0, 0x80, 0x7f};
  // Of a random block whose d is 1, and the mean of its numbers.
  const double spread = type == GgufId::q4_0 || type == GgufId::q4_1   ? 4.6
                        : type == GgufId::q5_0 || type == GgufId::q5_1 ? 9.2
                        : type == GgufId::q8_0                         ? 74
                        : type == GgufId::q4_k                         ? 258
                        : type == GgufId::q5_k                         ? 527
                                                                       : 1366;
  const double mean = type == GgufId::q4_1 || type == GgufId::q4_k ? 7.5 : 15.5;
  constexpr std::uint16_t kHalves[] = {0, 0x8000, 1, 0x8001, 0x3ff, 0x83ff, 0x400, 0x7bff, 0xfbff};
  for (std::size_t b = 0; b < row.size(); b += size) {
    const int kind = extreme ? random.below(4) : 0, end = kEnds[random.below(6)];
    for (std::size_t i = 0; i < size; ++i)
      row[b + i] = static_cast<std::byte>(kind == 0   ? random.below(256)
                                          : kind == 1 ? end
                                                      : kEnds[random.below(6)]);
    const double d = deviation / spread * random.between(0.75, 1.25) * (random.bernoulli(0.5) ? 1 : -1);
    std::uint16_t halves[2];
    for (int i = 0; i < 2; ++i)
      halves[i] = extreme && random.bernoulli(0.5) ? kHalves[random.below(9)]
                  : extreme ? static_cast<std::uint16_t>(random.below(0x7c00) | random.below(2) << 15)
                            : specula::detail::round_to_half(
                                  static_cast<float>(i == 0 ? d : d * mean * (is_k_type(type) ? 1 : -1)));
    put_half(row.data() + b + place_of_d(type), halves[0]);
    if (has_minimum(type)) put_half(row.data() + b + 2, halves[1]);
  }
  return row;
}

/// A weight is scale * number + minimum.
struct PlainWeight {
  int number;
  float scale, minimum;
};

/// Column k of a row, by the layout that llama.cpp documents: each number by itself.
inline PlainWeight plain_weight(specula::files::GgufId type, const std::byte* row, int k) {
  using specula::files::GgufId;
  const int in_block = static_cast<int>(about(type).block), i = k % in_block;
  const std::byte* const block = row + static_cast<std::ptrdiff_t>(k / in_block) * about(type).bytes;
  const auto byte = [&](int at) { return std::to_integer<int>(block[at]); };
  const auto signed_byte = [&](int at) { return byte(at) - (byte(at) > 127 ? 256 : 0); };
  const auto in_float = [](double value) { return static_cast<float>(value); };
  const double d = half_at(block + place_of_d(type)), m = half_at(block + 2);
  if (type == GgufId::q6_k) {
    const int half = i / 128, quarter = i / 32 % 4, at = i % 32;
    const int low = byte(64 * half + 32 * (quarter % 2) + at) >> (quarter < 2 ? 0 : 4) & 15,
              high = byte(128 + 32 * half + at) >> 2 * quarter & 3;
    return {low + 16 * high - 32, in_float(d * signed_byte(192 + i / 16)), 0};
  }
  if (type == GgufId::q4_k || type == GgufId::q5_k) {
    const int g = i / 32, first = type == GgufId::q5_k ? 48 : 16;
    int number = byte(first + i / 64 * 32 + i % 32) >> (g % 2 ? 4 : 0) & 15;
    if (type == GgufId::q5_k) number += 16 * (byte(16 + i % 32) >> g & 1);
    const int scale = g < 4 ? byte(4 + g) & 63 : (byte(8 + g) & 15) | (byte(g) >> 6) << 4,
              minimum = g < 4 ? byte(8 + g) & 63 : byte(8 + g) >> 4 | (byte(4 + g) >> 6) << 4;
    return {number, in_float(d * scale), in_float(-m * minimum)};
  }
  if (type == GgufId::q8_0) return {signed_byte(2 + i), in_float(d), 0};
  const bool five = type == GgufId::q5_0 || type == GgufId::q5_1, above = has_minimum(type);
  const int head = above ? 4 : 2;
  int number = byte(head + (five ? 4 : 0) + i % 16) >> (i < 16 ? 0 : 4) & 15;
  if (five) number += 16 * (byte(head + i / 8) >> i % 8 & 1);
  return above ? PlainWeight{number, in_float(d), in_float(m)}
               : PlainWeight{number - (five ? 16 : 8), in_float(d), 0};
}

}  // namespace specula_test
