// SPDX-License-Identifier: MIT
// Number types of GGUF tensors, and the expansion of those in blocks to floats: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
// Q4_K, Q5_K, Q6_K. Types and layouts: llama.cpp, ggml.h (enum ggml_type), ggml-common.h and, for the order
// of numbers within a block of 256, ggml-quants.c (dequantize_row_q4_K and the like).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "specula/files/safetensors.hpp"

namespace specula::files {

/// Numbers of the types that are expanded here, as files have them.
enum class GgufId : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30
};

/// How numbers of a type are stored. A row is whole blocks.
struct GgufType {
  std::uint32_t id;      ///< number in files
  const char* name;      ///< as llama.cpp prints it
  std::uint32_t block;   ///< numbers per block; 1: not in blocks
  std::uint32_t bytes;   ///< bytes per block
  bool expands = false;  ///< by expand()
};

/// All types of llama.cpp; null for a number that none has.
inline const GgufType* find_gguf_type(std::uint32_t id) {
  static constexpr GgufType kTypes[] = {{0, "F32", 1, 4, true},
                                        {1, "F16", 1, 2, true},
                                        {2, "Q4_0", 32, 18, true},
                                        {3, "Q4_1", 32, 20, true},
                                        {6, "Q5_0", 32, 22, true},
                                        {7, "Q5_1", 32, 24, true},
                                        {8, "Q8_0", 32, 34, true},
                                        {9, "Q8_1", 32, 36},
                                        {10, "Q2_K", 256, 84},
                                        {11, "Q3_K", 256, 110},
                                        {12, "Q4_K", 256, 144, true},
                                        {13, "Q5_K", 256, 176, true},
                                        {14, "Q6_K", 256, 210, true},
                                        {15, "Q8_K", 256, 292},
                                        {16, "IQ2_XXS", 256, 66},
                                        {17, "IQ2_XS", 256, 74},
                                        {18, "IQ3_XXS", 256, 98},
                                        {19, "IQ1_S", 256, 50},
                                        {20, "IQ4_NL", 32, 18},
                                        {21, "IQ3_S", 256, 110},
                                        {22, "IQ2_S", 256, 82},
                                        {23, "IQ4_XS", 256, 136},
                                        {24, "I8", 1, 1},
                                        {25, "I16", 1, 2},
                                        {26, "I32", 1, 4},
                                        {27, "I64", 1, 8},
                                        {28, "F64", 1, 8},
                                        {29, "IQ1_M", 256, 56},
                                        {30, "BF16", 1, 2, true},
                                        {34, "TQ1_0", 256, 54},
                                        {35, "TQ2_0", 256, 66},
                                        {39, "MXFP4", 32, 17},
                                        {40, "NVFP4", 64, 36},
                                        {41, "Q1_0", 128, 18},
                                        {42, "Q2_0", 64, 18}};
  for (const GgufType& type : kTypes)
    if (type.id == id) return &type;
  return nullptr;
}

namespace detail {

inline constexpr std::int32_t kGroup = 32;  // numbers that share a scale, or two

/// What distinguishes types of blocks. A weight is scale * (number - zero), or scale * number + minimum.
struct BlockFormat {
  int bits;      // of a number
  int zero;      // 2^k, or 0: none
  bool minimum;  // a minimum for each scale
  bool levels;   // in blocks of 256: scale = d * s, minimum = -m * t
  bool in_two;   // a scale for each 16 numbers

  /// Of a block in a file: 32 numbers, or 256 in two levels.
  constexpr std::ptrdiff_t bytes() const {
    const int halves = minimum ? 4 : 2;
    return levels ? halves + (in_two ? 16 : 12) + 32 * bits : halves + 4 * bits;
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

/// The 6-bit scale and minimum of a group.
struct ScaleAndMinimum {
  std::uint8_t scale, minimum;
};

/// Of group 0 to 7 in the 12 bytes of Q4_K and Q5_K. Bytes 0 to 3 begin with the scales of groups 0 to 3,
/// bytes 4 to 7 with their minimums; bytes 8 to 11 have the lower four bits of the others' scales and
/// minimums, whose upper two end bytes 0 to 7.
inline ScaleAndMinimum scale_and_minimum(const std::byte* scales12, int group) {
  const auto byte = [&](int i) { return std::to_integer<std::uint32_t>(scales12[i]); };
  const auto both = [](std::uint32_t scale, std::uint32_t minimum) {
    return ScaleAndMinimum{static_cast<std::uint8_t>(scale), static_cast<std::uint8_t>(minimum)};
  };
  if (group < 4) return both(byte(group) & 63u, byte(group + 4) & 63u);
  return both((byte(group + 4) & 15u) | byte(group - 4) >> 6 << 4,
              byte(group + 4) >> 4 | byte(group) >> 6 << 4);
}

/// A group of a row: its numbers as the file has them, and the scales of both levels.
struct BlockGroup {
  std::uint8_t numbers[kGroup];
  std::uint16_t d = 0, m = 0;  // bits of halves
  std::uint8_t s = 0, t = 0;   // scale and minimum, or the scales of 16 numbers each
};

inline std::uint16_t half_bits(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
/// Whether a half is infinite or NaN.
inline bool not_finite(std::uint16_t half) { return (half & 0x7c00u) == 0x7c00u; }

/// Eight bytes, the first in the lowest.
inline std::uint64_t eight(const std::byte* at) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);
  return bytes;
}
/// A mask in each of eight bytes.
constexpr std::uint64_t in_each(std::uint64_t mask) { return mask * 0x0101010101010101u; }

/// Group `g` of a row in a file, whose blocks have `type`. Eight numbers at a time.
inline void read_group(GgufId type, const std::byte* row, std::int32_t g, BlockGroup& out) {
  const BlockFormat format = format_of(type);
  const int in_block = format.levels ? 8 : 1, k = g % in_block;
  const std::byte* const block = row + static_cast<std::ptrdiff_t>(g / in_block) * format.bytes();
  const auto put = [&](int i, std::uint64_t numbers) {
    std::memcpy(out.numbers + 8 * i, &numbers, sizeof numbers);
  };
  if (!format.levels) {
    out.d = half_bits(block);
    if (format.minimum) out.m = half_bits(block + 2);
    const std::byte* at = block + (format.minimum ? 4 : 2);
    if (format.bits == 8) {
      std::memcpy(out.numbers, at, kGroup);
      return;
    }
    const std::byte* const fifth = at;
    if (format.bits == 5) at += 4;
    for (int i = 0; i < 4; ++i) {
      std::uint64_t numbers = eight(at + i % 2 * 8) >> i / 2 * 4 & in_each(15);
      if (format.bits == 5) {
        const std::uint64_t one =
            in_each(std::to_integer<std::uint64_t>(fifth[i])) & 0x8040201008040201u;  // bit i of byte i
        numbers |= ((one + in_each(127)) >> 7 & in_each(1)) << 4;
      }
      put(i, numbers);
    }
  } else if (type == GgufId::q6_k) {
    const std::byte *const low = block + 64 * (k / 4) + 32 * (k % 2), *const high =
                                                                          block + 128 + 32 * (k / 4);
    for (int i = 0; i < 4; ++i)
      put(i, (eight(low + 8 * i) >> k % 4 / 2 * 4 & in_each(15)) |
                 (eight(high + 8 * i) >> k % 4 * 2 & in_each(3)) << 4);
    out.s = std::to_integer<std::uint8_t>(block[192 + 2 * k]);
    out.t = std::to_integer<std::uint8_t>(block[192 + 2 * k + 1]);
    out.d = half_bits(block + 208);
  } else {  // Q4_K, Q5_K
    out.d = half_bits(block), out.m = half_bits(block + 2);
    const ScaleAndMinimum both = scale_and_minimum(block + 4, k);
    out.s = both.scale, out.t = both.minimum;
    const std::byte *const fifth = block + 16, *const low =
                                                   fifth + (format.bits == 5 ? 32 : 0) + 32 * (k / 2);
    for (int i = 0; i < 4; ++i) {
      std::uint64_t numbers = eight(low + 8 * i) >> k % 2 * 4 & in_each(15);
      if (format.bits == 5) numbers |= (eight(fifth + 8 * i) >> k & in_each(1)) << 4;
      put(i, numbers);
    }
  }
}

/// What a group's numbers are multiplied by, exact: of the first and the last 16 columns, and what is added.
struct GroupScales {
  float first, second, minimum;
};
inline GroupScales scales_of(const BlockFormat& format, const BlockGroup& group) {
  const float d = specula::detail::half_to_float(group.d), m = specula::detail::half_to_float(group.m);
  if (!format.levels) return {d, d, m};
  if (format.in_two)
    return {d * static_cast<float>(static_cast<std::int8_t>(group.s)),
            d * static_cast<float>(static_cast<std::int8_t>(group.t)), 0.0f};
  const float scale = d * static_cast<float>(group.s);
  return {scale, scale, -m * static_cast<float>(group.t)};
}

/// The weights of a group, to the bits of expand().
[[gnu::always_inline]] inline void expand_group(const BlockFormat& format, const BlockGroup& group,
                                                float* out) {
  const GroupScales scales = scales_of(format, group);
  for (int i = 0; i < kGroup; ++i) {
    const int number =
        format.bits == 8 ? static_cast<std::int8_t>(group.numbers[i]) : group.numbers[i] - format.zero;
    // The product is exact, so that a fused sum gives the same bits. Without a minimum: a sum would make 0 of
    // -0.
    out[i] = (i < kGroup / 2 ? scales.first : scales.second) * static_cast<float>(number);
    if (format.minimum) out[i] += scales.minimum;
  }
}

}  // namespace detail

/// Expands `out`.size() numbers of a type with `expands`, which are whole blocks, at `row` (any alignment).
/// To the bits that ggml gives: exact but for Q4_1, Q5_1, Q4_K and Q5_K, whose sum is rounded.
inline void expand(GgufId id, const std::byte* row, std::span<float> out) {
  if (out.empty()) return;
  if (id == GgufId::f32) return decode(Dtype::f32, row, out);
  if (id == GgufId::f16) return decode(Dtype::f16, row, out);
  if (id == GgufId::bf16) return decode(Dtype::bf16, row, out);
  for (std::size_t first = 0; first < out.size(); first += detail::kGroup) {
    detail::BlockGroup group;
    detail::read_group(id, row, static_cast<std::int32_t>(first / detail::kGroup), group);
    detail::expand_group(detail::format_of(id), group, out.data() + first);
  }
}

}  // namespace specula::files
