// SPDX-License-Identifier: MIT
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

/// The high half of a product.
SPECULA_HD std::uint32_t high_product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);
#else
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
#endif
}

/// The random words of a counter. `key`: its low half is the algorithm's first key word.
SPECULA_HD Words philox(Words counter, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  SPECULA_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t a = high_product(kPhiloxMultiplierX, counter.x),
                        b = high_product(kPhiloxMultiplierZ, counter.z);
    counter = {b ^ counter.y ^ k0, kPhiloxMultiplierZ * counter.z, a ^ counter.w ^ k1,
               kPhiloxMultiplierX * counter.x};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return counter;
}

}  // namespace specula::detail
