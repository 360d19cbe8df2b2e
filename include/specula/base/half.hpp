// SPDX-License-Identifier: MIT
// Half floats (IEEE 754 binary16) to floats and back, and bfloat16 to floats.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// The bits of a float from those of a half float, or of a vector of them. Without branches.
template <class Floats, class Ints>
[[gnu::always_inline]] inline void widen(Ints& bits) {
  const Ints rest = bits & 0x7fff, sign = (bits ^ rest) << 16;
  const Ints is_largest = (0x7bff - rest) >> 31, is_subnormal = (rest - 0x400) >> 31;  // masks
  // The exponents differ by 112; the largest, of infinity and NaN, by 224.
  const Ints normal = (rest + 0x1c000 + (is_largest & 0x1c000)) << 13;
  Ints subnormal;
  if constexpr (std::is_same_v<Floats, float>)
    subnormal = std::bit_cast<Ints>(static_cast<float>(rest) * 0x1p-24f);
  else  // a cast, since a vector that a function returns depends on the instruction set
    subnormal = Ints(__builtin_convertvector(rest, Floats) * 0x1p-24f);
  bits = sign | (normal & ~is_subnormal) | (subnormal & is_subnormal);
}

/// Exact.
[[gnu::always_inline]] inline float half_to_float(std::uint16_t half) {
  std::int32_t bits = half;
  widen<float>(bits);
  return std::bit_cast<float>(bits);
}

/// The upper half of a float. Exact.
[[gnu::always_inline]] inline float bfloat16_to_float(std::uint16_t upper) {
  return std::bit_cast<float>(std::uint32_t{upper} << 16);
}

/// half_to_float() of four, in a vector: compilers do not make vectors of a loop at -O2.
[[gnu::always_inline]] inline void four_halves_to_floats(const std::uint16_t* halves, float* out) {
  typedef std::uint16_t Halves __attribute__((vector_size(8)));
  typedef std::int32_t Ints __attribute__((vector_size(16)));
  typedef float Floats __attribute__((vector_size(16)));
  Halves four;
  std::memcpy(&four, halves, sizeof(four));
  auto bits = __builtin_convertvector(four, Ints);
  widen<Floats>(bits);
  std::memcpy(out, &bits, sizeof(bits));
}

/// The nearest half float, ties to even; infinity from 65520 on. NaN keeps its first bits, as F16C has it.
[[gnu::always_inline]] inline std::uint16_t round_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000u,
             size = bits & 0x7fffffffu;
  const std::uint32_t not_finite = size > 0x7f800000u ? 0x7e00u | (size >> 13 & 0x3ffu) : 0x7c00u;
  const std::uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  // In units of 2^-24, rounded by the sum.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  return static_cast<std::uint16_t>(sign | (size >= 0x477ff000u  ? not_finite
                                            : size < 0x38800000u ? subnormal
                                                                 : normal));
}

}  // namespace specula::detail
