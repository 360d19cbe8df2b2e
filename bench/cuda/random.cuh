// SPDX-License-Identifier: MIT
// Random numbers of the host, the same on every machine, and elements as numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <specula/cuda/args/types.cuh>
#include <specula/cuda/detail/primitives/thread/numbers.cuh>

namespace specula_bench {

struct Random {
  std::uint64_t state;

  std::uint64_t bits() {  // splitmix64
    std::uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint64_t>(n)); }
  float normal() {  // nearly: a sum of 12 uniform numbers, within 6
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(bits() >> 40) * 0x1p-24f;
    return sum;
  }
};

inline double as_double(float x) { return static_cast<double>(x); }
template <class Element>
double as_double(Element x) {
  return static_cast<double>(specula::cuda::detail::to_float(x));
}
inline double as_double(specula::cuda::Float8E4M3 x) {
  const int exponent = x.bits >> 3 & 15, mantissa = x.bits & 7;
  const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return x.bits & 0x80 ? -size : size;
}

inline float rounded(float x, float) { return x; }
inline specula::cuda::BFloat16 rounded(float x, specula::cuda::BFloat16) {  // to the nearest, ties to even
  std::uint32_t b;
  std::memcpy(&b, &x, 4);
  return {static_cast<std::uint16_t>((b + 0x7FFFu + (b >> 16 & 1u)) >> 16)};
}
/// |x| < 16, to a multiple of 2^-11, or of what a half can hold.
inline specula::cuda::Half rounded(float x, specula::cuda::Half) {
  const float size = std::abs(x);
  const float unit = size < 1 ? 0x1p-11f : size < 2 ? 0x1p-10f : size < 4 ? 0x1p-9f : 0x1p-7f;
  const float y = std::nearbyint(size / unit) * unit;
  if (y == 0) return {0};
  int exponent;
  const float fraction = std::frexp(y, &exponent);  // in [.5, 1)
  const int mantissa = static_cast<int>(fraction * 2048) - 1024;
  return {static_cast<std::uint16_t>((x < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | mantissa)};
}

/// |x| < 448, to the nearest.
inline specula::cuda::Float8E4M3 rounded(float x, specula::cuda::Float8E4M3) {
  int exponent;
  std::frexp(x, &exponent);  // |x| in [.5, 1) times 2^exponent
  exponent = std::max(exponent - 1, -6);
  int mantissa = static_cast<int>(std::nearbyint(std::ldexp(std::abs(x), 3 - exponent)));
  if (mantissa == 16) mantissa = 8, ++exponent;
  const int size = mantissa < 8 ? mantissa : (exponent + 7) << 3 | (mantissa - 8);
  return {static_cast<std::uint8_t>((x < 0 ? 0x80 : 0) | size)};
}

}  // namespace specula_bench
