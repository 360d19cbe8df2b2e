// SPDX-License-Identifier: MIT
// Division by an invariant integer as a multiplication and a shift.
#pragma once

#include <cstdint>

#include "specula/cuda/args/integers.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Division of 0 .. 2^31 - 1 by a number from 1: a product and a shift (Granlund and Montgomery 1994).
struct Divisor {
  std::uint32_t by = 1, multiplier = 0x80000000u;
  int shift = 31;

  Divisor() = default;
  explicit Divisor(std::uint32_t d) : by(d) {
    int log = 0;
    while ((std::uint64_t{1} << log) < d) ++log;
    shift = 31 + log;
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + d - 1) / d);
  }
  SPECULA_HD std::uint32_t quotient(std::uint32_t n) const {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(n) * multiplier >> shift);
  }
  /// The quotient of n, which becomes the remainder.
  SPECULA_HD int divide(int* n) const {
    const auto q = static_cast<int>(quotient(static_cast<std::uint32_t>(*n)));
    *n -= q * static_cast<int>(by);
    return q;
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
