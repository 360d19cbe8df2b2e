// SPDX-License-Identifier: MIT
// Half floats (IEEE 754 binary16) to floats and back, one at a time.
#pragma once

#include <bit>
#include <cstdint>

#include "specula/base/compiler_options.hpp"

namespace specula::cpu::detail {

/// Exact. Without branches, so that compilers make vectors of a loop.
[[gnu::always_inline]] inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16, rest = half & 0x7fffu;
  // The exponents differ by 112; the largest, of infinity and NaN, by 224.
  const std::uint32_t normal = (rest + (rest >= 0x7c00u ? 0x38000u : 0x1c000u)) << 13;
  const auto subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(rest)) * 0x1p-24f);
  return std::bit_cast<float>(sign | (rest < 0x400u ? subnormal : normal));
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

}  // namespace specula::cpu::detail
