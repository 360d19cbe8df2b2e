// Philox4x32-10 (Salmon et al. 2011). C++17.
#pragma once

#include <cstdint>

#include "specula/base/host_device.hpp"

namespace specula::detail {

constexpr std::uint32_t kPhiloxMultiplierX = 0xD2511F53u, kPhiloxMultiplierZ = 0xCD9E8D57u;
constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

struct Words {
  std::uint32_t x, y, z, w;
};

struct Product {
  std::uint32_t high, low;
};
/// Two multiplications on a device, where a 64-bit product costs registers; one on the CPU.
SPECULA_HD Product product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return {__umulhi(a, b), a * b};
#else
  const std::uint64_t both = std::uint64_t{a} * b;
  return {static_cast<std::uint32_t>(both >> 32), static_cast<std::uint32_t>(both)};
#endif
}

/// The random words of a counter. `key`: its low half is the algorithm's first key word.
SPECULA_HD Words philox(Words counter, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  SPECULA_UNROLL
  for (int round = 0; round < 10; ++round) {
    const Product x = product(kPhiloxMultiplierX, counter.x), z = product(kPhiloxMultiplierZ, counter.z);
    counter = {z.high ^ counter.y ^ k0, z.low, x.high ^ counter.w ^ k1, x.low};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return counter;
}

}  // namespace specula::detail
