// SPDX-License-Identifier: MIT
// Number types of GGUF tensors, and the expansion of those in blocks to floats: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
// Q4_K, Q5_K, Q6_K. Types and layouts: llama.cpp, ggml.h (enum ggml_type), ggml-common.h and, for the order
// of numbers within a block of 256, ggml-quants.c (dequantize_row_q4_K and the like).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "specula/cpu/safetensors.hpp"

namespace specula::cpu {

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

inline float gguf_half(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return half_to_float(bits);
}

/// A block of 32: d, then m if kOffset, the fifth bits if kBits is 5, the lower four bits of numbers i and
/// i + 16 in byte i. Number i is d q + m, or, without m, d (q - 2^(kBits - 1)).
template <int kBits, bool kOffset>
void expand_nibbles(const std::byte* block, float* out) {
  const float scale = gguf_half(block), offset = kOffset ? gguf_half(block + 2) : 0.0f;
  const std::byte* at = block + (kOffset ? 4 : 2);
  std::uint32_t fifth = 0;
  if (kBits == 5) std::memcpy(&fifth, at, 4), at += 4;
  constexpr int kZero = kOffset ? 0 : 1 << (kBits - 1);
  for (int i = 0; i < 32; ++i) {
    const auto byte = std::to_integer<std::uint32_t>(at[i % 16]);
    const std::uint32_t steps = (i < 16 ? byte & 15u : byte >> 4) | (fifth >> i & 1u) << 4;
    const float product = scale * static_cast<float>(static_cast<int>(steps) - kZero);
    // The product is exact, so that a fused sum gives the same bits. Without m: a sum would make 0 of -0.
    out[i] = kOffset ? product + offset : product;
  }
}

/// The 6-bit scale and minimum of a group.
struct ScaleAndMinimum {
  std::uint32_t scale, minimum;
};

/// Of group 0 to 7 in the 12 bytes of Q4_K and Q5_K. Bytes 0 to 3 begin with the scales of groups 0 to 3,
/// bytes 4 to 7 with their minimums; bytes 8 to 11 have the lower four bits of the others' scales and
/// minimums, whose upper two end bytes 0 to 7.
inline ScaleAndMinimum scale_and_minimum(const std::byte* scales12, int group) {
  const auto byte = [&](int i) { return std::to_integer<std::uint32_t>(scales12[i]); };
  if (group < 4) return {byte(group) & 63u, byte(group + 4) & 63u};
  return {(byte(group + 4) & 15u) | byte(group - 4) >> 6 << 4, byte(group + 4) >> 4 | byte(group) >> 6 << 4};
}

/// A block of 256: d, the step of the minimums, the scales and minimums of 8 groups of 32 numbers, the fifth
/// bits of group g in bit g of 32 bytes if kBits is 5, the lower four bits of groups 2 i and 2 i + 1 in 32
/// bytes. Number q of a group is d scale q - step minimum.
template <int kBits>
void expand_offset_groups(const std::byte* block, float* out) {
  const float d = gguf_half(block), step = gguf_half(block + 2);
  const std::byte *const fifth = block + 16, *const nibbles = fifth + (kBits == 5 ? 32 : 0);
  for (int g = 0; g < 8; ++g) {
    const auto [scale, minimum] = scale_and_minimum(block + 4, g);
    const float size = d * static_cast<float>(scale), least = step * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      std::uint32_t q = std::to_integer<std::uint32_t>(nibbles[g / 2 * 32 + i]) >> g % 2 * 4 & 15u;
      if (kBits == 5) q |= (std::to_integer<std::uint32_t>(fifth[i]) >> g & 1u) << 4;
      // All products are exact, so that a fused difference gives the same bits.
      out[g * 32 + i] = size * static_cast<float>(q) - least;
    }
  }
}

/// A block of 256 of Q6_K: 128 bytes with the lower four bits, 64 with the upper two, 16 signed scales of 16
/// numbers, d. Each half of the numbers has half of the bytes: its number i has the lower four bits in byte
/// i % 64, the upper two in byte i % 32. Number q is d scale (q - 32), exactly.
inline void expand_six_bits(const std::byte* block, float* out) {
  const float d = gguf_half(block + 208);
  for (int g = 0; g < 16; ++g) {
    const int half = g / 8, first = g % 8 * 16;
    const std::byte *const four = block + half * 64 + first % 64, *const two =
                                                                      block + 128 + half * 32 + first % 32;
    const float size = d * static_cast<float>(std::to_integer<std::int8_t>(block[192 + g]));
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t q = (std::to_integer<std::uint32_t>(four[i]) >> first / 64 * 4 & 15u) |
                              (std::to_integer<std::uint32_t>(two[i]) >> first / 32 * 2 & 3u) << 4;
      out[g * 16 + i] = size * static_cast<float>(static_cast<int>(q) - 32);
    }
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
  const GgufType& type = *find_gguf_type(static_cast<std::uint32_t>(id));
  for (std::size_t first = 0; first < out.size(); first += type.block, row += type.bytes) {
    float* const to = out.data() + first;
    switch (id) {
      case GgufId::q4_0:
        detail::expand_nibbles<4, false>(row, to);
        break;
      case GgufId::q4_1:
        detail::expand_nibbles<4, true>(row, to);
        break;
      case GgufId::q5_0:
        detail::expand_nibbles<5, false>(row, to);
        break;
      case GgufId::q5_1:
        detail::expand_nibbles<5, true>(row, to);
        break;
      case GgufId::q4_k:
        detail::expand_offset_groups<4>(row, to);
        break;
      case GgufId::q5_k:
        detail::expand_offset_groups<5>(row, to);
        break;
      case GgufId::q6_k:
        detail::expand_six_bits(row, to);
        break;
      default: {  // Q8_0
        const float scale = detail::gguf_half(row);
        for (std::size_t i = 0; i < 32; ++i)
          to[i] = scale * static_cast<float>(std::to_integer<std::int8_t>(row[2 + i]));
      }
    }
  }
}

}  // namespace specula::cpu
