// SPDX-License-Identifier: MIT
// Weights that stay in the blocks of a GGUF file: their numbers and scales, bit for bit, in the order in
// which products read them.
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
#include <type_traits>

#include "specula/base/compiler_options.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/files/gguf_blocks.hpp"

namespace specula::cpu::detail {

// Formats are the files'; here they are laid out.
using files::detail::BlockFormat, files::detail::BlockGroup, files::detail::format_of;
using files::detail::has_format, files::detail::in_each, files::detail::kGroup;

inline constexpr int kPairs = kGroup / 2;  // of a group

/// The sizes that follow from a format.
struct BlockLayout : BlockFormat {
  constexpr BlockLayout(const BlockFormat& format) : BlockFormat(format) {}

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

/// Panels of weights in blocks of a type.
struct BlockPanels {
  files::GgufId type;
  const std::byte* at;  // the first panel
};

/// The low four bits of eight numbers, in order.
inline std::uint32_t nibbles(std::uint64_t numbers) {
  std::uint64_t v = numbers & in_each(15);
  v = (v | v >> 4) & 0x00ff00ff00ff00ffu;
  v = (v | v >> 8) & 0x0000ffff0000ffffu;
  return static_cast<std::uint32_t>(v | v >> 16);
}
/// The further bits of eight numbers, one or two: of the first four in order, and of the others from bit 16
/// on.
inline std::uint32_t further_bits(std::uint64_t numbers, int more) {
  if (more == 1) {  // bit 8 i moves to bit 56 + i
    const std::uint64_t bits = (numbers >> 4 & in_each(1)) * 0x0102040810204080u >> 56;
    return static_cast<std::uint32_t>((bits & 15u) | bits >> 4 << 16);
  }
  std::uint64_t v = numbers >> 4 & in_each(3);
  v = (v | v >> 6) & 0x000f000f000f000fu;
  v = (v | v >> 12) & 0x000000ff000000ffu;
  return static_cast<std::uint32_t>(v | v >> 16);
}

/// What nibbles() was given.
inline std::uint64_t from_nibbles(std::uint32_t nibbles) {
  std::uint64_t v = nibbles;
  v = (v | v << 16) & 0x0000ffff0000ffffu;
  v = (v | v << 8) & 0x00ff00ff00ff00ffu;
  return (v | v << 4) & in_each(15);
}
/// What further_bits() was given, but for the low four bits of each number.
inline std::uint64_t from_further_bits(std::uint32_t bits, int more) {
  std::uint64_t v = bits;
  if (more == 1) {
    v = in_each((v | v >> 12) & 255u) & 0x8040201008040201u;  // bit i of byte i
    return ((v + in_each(127)) >> 7 & in_each(1)) << 4;
  }
  v = (v | v << 16) & 0x000000ff000000ffu;
  v = (v | v << 12) & 0x000f000f000f000fu;
  return ((v | v << 6) & in_each(3)) << 4;
}

/// Calls f(std::integral_constant<GgufId, type>), so that a loop knows its format. Requires has_format().
template <class F>
void with_format(files::GgufId type, F f) {
  switch (type) {
    case files::GgufId::q4_0:
      return f(std::integral_constant<files::GgufId, files::GgufId::q4_0>{});
    case files::GgufId::q4_1:
      return f(std::integral_constant<files::GgufId, files::GgufId::q4_1>{});
    case files::GgufId::q5_0:
      return f(std::integral_constant<files::GgufId, files::GgufId::q5_0>{});
    case files::GgufId::q5_1:
      return f(std::integral_constant<files::GgufId, files::GgufId::q5_1>{});
    case files::GgufId::q4_k:
      return f(std::integral_constant<files::GgufId, files::GgufId::q4_k>{});
    case files::GgufId::q5_k:
      return f(std::integral_constant<files::GgufId, files::GgufId::q5_k>{});
    case files::GgufId::q6_k:
      return f(std::integral_constant<files::GgufId, files::GgufId::q6_k>{});
    default:
      return f(std::integral_constant<files::GgufId, files::GgufId::q8_0>{});
  }
}

/// Writes a group's row `r` of 16 to a panel.
inline void pack_group(const BlockLayout& format, const BlockGroup& group, std::int32_t g, int r,
                       std::byte* panel) {
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
  const int more = format.bits - 4;
  std::uint32_t planes[2] = {};
  for (int j = 0; j < 4; ++j) {
    std::uint64_t q = 0;
    std::memcpy(&q, group.numbers + 8 * j, sizeof q);
    if (format.bits == 8) {
      for (int i = 0; i < 2; ++i, at += 4 * kPanel)
        put(at, static_cast<std::uint32_t>((q >> 16 * i & 0xffffu) | (q >> (16 * i + 32) & 0xffffu) << 16));
      continue;
    }
    put(at, nibbles(q));
    at += 4 * kPanel;
    if (more == 1) planes[0] |= further_bits(q, 1) << 4 * j;
    if (more == 2) planes[j / 2] |= further_bits(q, 2) << 8 * (j % 2);
  }
  for (int plane = 0; plane < format.planes(); ++plane, at += 4 * kPanel) put(at, planes[plane]);
}

/// Reads it again.
[[gnu::always_inline]] inline void unpack_group(const BlockLayout& format, const std::byte* panel,
                                                std::int32_t g, int r, BlockGroup& out) {
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
  const int more = format.bits - 4;
  for (int j = 0; j < 4; ++j) {
    std::uint64_t q = 0;
    if (format.bits == 8) {
      const std::uint64_t first = words[2 * j], second = words[2 * j + 1];
      q = (first & 0xffffu) | (second & 0xffffu) << 16 | first >> 16 << 32 | second >> 16 << 48;
    } else {
      q = from_nibbles(words[j]);
    }
    if (more == 1) q |= from_further_bits(words[4] >> 4 * j & 0x000f000fu, 1);
    if (more == 2) q |= from_further_bits(words[4 + j / 2] >> 8 * (j % 2) & 0x00ff00ffu, 2);
    std::memcpy(out.numbers + 8 * j, &q, sizeof q);
  }
}

}  // namespace specula::cpu::detail
