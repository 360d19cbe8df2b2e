// SPDX-License-Identifier: MIT
// Weights that stay in the blocks of a GGUF file: their numbers and scales, bit for bit, in the order in which
// products read them.
//
// Rows lie in panels of 16. A panel is groups of 32 columns, one after the other. Whatever a group has for
// each row, it has for all 16 rows side by side, so that a register holds 16 (or 8) rows:
//
//   in two levels, before every eighth group:  half d[16];  with minimums: half m[16]
//   of every group, in one level:              half d[16];  with minimums: half m[16]
//                   in two levels:             byte s[16], byte t[16]: scales and minimums of 32 columns, or
//                                              the scales of the first and the last 16 columns
//                   words:                     32 bits w[4 + planes][16], or w[8][16] of 8-bit numbers
//
// Nibble f of word j is the low four bits of column 8 j + f: shifted by 4 f and masked, a word gives columns
// 8 j + f and 8 j + f + 4 as 16-bit numbers: pair 4 j + f, which products take at once. A plane has further
// bits, one or two of each column, for pair p from bit p (or 2 (p % 8)) of each 16-bit half on. Of 8-bit
// numbers, word 2 j + i has columns 8 j + 2 i + {0, 1, 4, 5}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "specula/base/compiler_options.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/gguf_blocks.hpp"

namespace specula::cpu::detail {

inline constexpr std::int32_t kGroup = 32;  // columns
inline constexpr int kPairs = kGroup / 2;   // of a group

/// What distinguishes types of blocks. A weight is scale * (number - zero), or scale * number + minimum.
struct BlockFormat {
  int bits;       // of a number
  int zero;       // 2^k, or 0: none
  bool minimum;   // a minimum for each scale; in two levels it is subtracted
  bool levels;    // scale = d * s, minimum = m * t, of blocks of 256 columns
  bool in_two;    // a scale for each 16 columns

  constexpr int planes() const { return bits == 5 ? 1 : bits == 6 ? 2 : 0; }
  constexpr int words() const { return bits == 8 ? 8 : 4 + planes(); }
  /// Groups that share the halves in front of them.
  constexpr int shared() const { return levels ? 8 : 1; }
  constexpr std::ptrdiff_t halves() const { return (minimum ? 2 : 1) * 2 * kPanel; }  // bytes
  constexpr std::ptrdiff_t group_head() const { return levels ? 2 * kPanel : halves(); }
  constexpr std::ptrdiff_t group_bytes() const { return group_head() + words() * 4 * kPanel; }
  constexpr std::ptrdiff_t shared_head() const { return levels ? halves() : 0; }
  /// Bytes of a panel of `groups` groups.
  constexpr std::ptrdiff_t panel_bytes(std::ptrdiff_t groups) const {
    return groups * group_bytes() + (groups + shared() - 1) / shared() * shared_head();
  }
  /// Where group `g` of a panel begins.
  constexpr std::ptrdiff_t group_at(std::ptrdiff_t g) const {
    return g * group_bytes() + (g / shared() + 1) * shared_head();
  }
  /// Where the halves of its scales begin.
  constexpr std::ptrdiff_t halves_at(std::ptrdiff_t g) const {
    return levels ? group_at(g / shared() * shared()) - shared_head() : group_at(g);
  }
};

/// Whether matrices keep blocks of this type (ggml's number) as they are.
constexpr bool has_format(std::uint32_t type) {
  switch (static_cast<GgufId>(type)) {
    case GgufId::q4_0:
    case GgufId::q4_1:
    case GgufId::q5_0:
    case GgufId::q5_1:
    case GgufId::q8_0:
    case GgufId::q4_k:
    case GgufId::q5_k:
    case GgufId::q6_k:
      return true;
    default:
      return false;
  }
}

/// Requires has_format().
constexpr BlockFormat format_of(GgufId type) {
  switch (type) {
    case GgufId::q4_0:
      return {4, 8, false, false, false};
    case GgufId::q4_1:
      return {4, 0, true, false, false};
    case GgufId::q5_0:
      return {5, 16, false, false, false};
    case GgufId::q5_1:
      return {5, 0, true, false, false};
    case GgufId::q4_k:
      return {4, 0, true, true, false};
    case GgufId::q5_k:
      return {5, 0, true, true, false};
    case GgufId::q6_k:
      return {6, 32, false, true, true};
    default:
      return {8, 0, false, false, false};  // Q8_0
  }
}

/// A group of a file's row: its numbers, and the scales of both levels.
struct BlockGroup {
  std::uint8_t numbers[kGroup];
  std::uint16_t d = 0, m = 0;   // bits of halves
  std::uint8_t s = 0, t = 0;    // see the top of this file
};

inline std::uint16_t half_bits(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
/// Whether a half is infinite or NaN.
inline bool not_finite(std::uint16_t half) { return (half & 0x7c00u) == 0x7c00u; }

/// Group `g` of a row in a file, whose blocks have `type`.
inline void read_group(GgufId type, const std::byte* row, std::int32_t g, BlockGroup& out) {
  const BlockFormat format = format_of(type);
  const GgufType& about = *find_gguf_type(static_cast<std::uint32_t>(type));
  const auto in_block = static_cast<std::int32_t>(about.block) / kGroup;
  const std::byte* const block = row + static_cast<std::ptrdiff_t>(g / in_block) * about.bytes;
  const int k = g % in_block;
  const auto byte = [](const std::byte* from, int i) { return std::to_integer<std::uint32_t>(from[i]); };
  const auto put = [&](int i, std::uint32_t number) { out.numbers[i] = static_cast<std::uint8_t>(number); };
  if (!format.levels) {
    out.d = half_bits(block);
    if (format.minimum) out.m = half_bits(block + 2);
    const std::byte* at = block + (format.minimum ? 4 : 2);
    if (format.bits == 8) {
      std::memcpy(out.numbers, at, kGroup);
      return;
    }
    std::uint32_t fifth = 0;
    if (format.bits == 5) std::memcpy(&fifth, at, 4), at += 4;
    for (int i = 0; i < 16; ++i) {
      put(i, (byte(at, i) & 15u) | (fifth >> i & 1u) << 4);
      put(16 + i, byte(at, i) >> 4 | (fifth >> (16 + i) & 1u) << 4);
    }
  } else if (type == GgufId::q6_k) {
    const std::byte *const low = block + 64 * (k / 4) + 32 * (k % 2), *const high = block + 128 + 32 * (k / 4);
    const int shift = 4 * (k % 4 / 2), plane = 2 * (k % 4);
    for (int i = 0; i < kGroup; ++i)
      put(i, (byte(low, i) >> shift & 15u) | (byte(high, i) >> plane & 3u) << 4);
    out.s = std::to_integer<std::uint8_t>(block[192 + 2 * k]);
    out.t = std::to_integer<std::uint8_t>(block[192 + 2 * k + 1]);
    out.d = half_bits(block + 208);
  } else {  // Q4_K, Q5_K
    out.d = half_bits(block), out.m = half_bits(block + 2);
    const ScaleAndMinimum both = scale_and_minimum(block + 4, k);
    out.s = both.scale, out.t = both.minimum;
    const std::byte *const fifth = block + 16, *const low = fifth + (format.bits == 5 ? 32 : 0) + 32 * (k / 2);
    const int shift = 4 * (k % 2);
    for (int i = 0; i < kGroup; ++i) put(i, byte(low, i) >> shift & 15u);
    if (format.bits == 5)
      for (int i = 0; i < kGroup; ++i) out.numbers[i] |= static_cast<std::uint8_t>((byte(fifth, i) >> k & 1u) << 4);
  }
}

/// The low four bits of eight numbers, in order.
inline std::uint32_t nibbles(const std::uint8_t* numbers) {
  std::uint64_t v = 0;
  std::memcpy(&v, numbers, sizeof v);
  v &= 0x0f0f0f0f0f0f0f0fu;
  v = (v | v >> 4) & 0x00ff00ff00ff00ffu;
  v = (v | v >> 8) & 0x0000ffff0000ffffu;
  return static_cast<std::uint32_t>(v | v >> 16);
}

/// Writes a group's row `r` of 16 to a panel.
inline void pack_group(const BlockFormat& format, const BlockGroup& group, std::int32_t g, int r, std::byte* panel) {
  const auto put = [&](std::ptrdiff_t at, const auto& value) {  // the r-th of 16
    std::memcpy(panel + at + r * static_cast<std::ptrdiff_t>(sizeof value), &value, sizeof value);
  };
  std::ptrdiff_t at = format.halves_at(g);
  if (g % format.shared() == 0) {
    put(at, group.d);
    if (format.minimum) put(at + 2 * kPanel, group.m);
  }
  at = format.group_at(g);
  if (format.levels) {
    put(at, group.s);
    put(at + kPanel, group.t);
  }
  at += format.group_head();
  const std::uint8_t* const q = group.numbers;
  if (format.bits == 8) {
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 2; ++i, at += 4 * kPanel) {
        const std::uint8_t* const first = q + 8 * j + 2 * i;
        put(at, first[0] | std::uint32_t{first[1]} << 8 | std::uint32_t{first[4]} << 16 | std::uint32_t{first[5]} << 24);
      }
    return;
  }
  for (int j = 0; j < 4; ++j, at += 4 * kPanel) put(at, nibbles(q + 8 * j));
  const int more = format.bits - 4, per_word = more == 1 ? kPairs : kPairs / 2;
  for (int first = 0; more > 0 && first < kPairs; first += per_word, at += 4 * kPanel) {
    std::uint32_t plane = 0;
    for (int p = first; p < first + per_word; ++p) {
      const int column = p / 4 * 8 + p % 4, bit = more * (p - first);
      plane |= std::uint32_t{q[column]} >> 4 << bit | std::uint32_t{q[column + 4]} >> 4 << (bit + 16);
    }
    put(at, plane);
  }
}

/// Reads it again.
inline void unpack_group(const BlockFormat& format, const std::byte* panel, std::int32_t g, int r, BlockGroup& out) {
  const auto get = [&](std::ptrdiff_t at, auto& value) {
    std::memcpy(&value, panel + at + r * static_cast<std::ptrdiff_t>(sizeof value), sizeof value);
  };
  get(format.halves_at(g), out.d);
  if (format.minimum) get(format.halves_at(g) + 2 * kPanel, out.m);
  std::ptrdiff_t at = format.group_at(g);
  if (format.levels) get(at, out.s), get(at + kPanel, out.t);
  at += format.group_head();
  std::uint32_t words[8] = {};
  for (int j = 0; j < format.words(); ++j) get(at + j * 4 * kPanel, words[j]);
  const int more = format.bits - 4, per_word = more == 1 ? kPairs : kPairs / 2;
  for (int i = 0; i < kGroup; ++i) {
    const int j = i / 8, f = i % 8, p = 4 * j + f % 4;
    std::uint32_t number = 0;
    if (format.bits == 8) {
      number = words[2 * j + f % 4 / 2] >> (8 * (f % 2) + 16 * (f / 4)) & 0xffu;
    } else {
      number = words[j] >> 4 * f & 15u;
      if (more > 0)
        number |= (words[4 + p / per_word] >> (more * (p % per_word) + 16 * (f / 4)) & ((1u << more) - 1)) << 4;
    }
    out.numbers[i] = static_cast<std::uint8_t>(number);
  }
}

/// What a group's numbers are multiplied by, exact: of the first and the last 16 columns, and what is added.
struct GroupScales {
  float first, second, minimum;
};
inline GroupScales scales_of(const BlockFormat& format, const BlockGroup& group) {
  const float d = half_to_float(group.d), m = half_to_float(group.m);
  if (!format.levels) return {d, d, m};
  if (format.in_two)
    return {d * static_cast<float>(static_cast<std::int8_t>(group.s)),
            d * static_cast<float>(static_cast<std::int8_t>(group.t)), 0.0f};
  const float scale = d * static_cast<float>(group.s);
  return {scale, scale, -m * static_cast<float>(group.t)};
}

/// The weights of a group, to the bits of expand().
inline void expand_group(const BlockFormat& format, const BlockGroup& group, float* out) {
  const GroupScales scales = scales_of(format, group);
  for (int i = 0; i < kGroup; ++i) {
    const int number = format.bits == 8 ? static_cast<std::int8_t>(group.numbers[i]) : group.numbers[i] - format.zero;
    out[i] = (i < kGroup / 2 ? scales.first : scales.second) * static_cast<float>(number);
    if (format.bits < 6) out[i] += format.minimum ? scales.minimum : 0.0f;  // as ggml does: no -0
  }
}

}  // namespace specula::cpu::detail
