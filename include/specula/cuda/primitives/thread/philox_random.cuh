// Philox uniform draws on the device: the words of specula::PhiloxRandom for the same key.
#pragma once

#include <cstdint>

#include "specula/cuda/host_device.cuh"
#include "specula/cuda/types.cuh"

namespace specula {
namespace cuda {
namespace detail {

struct Words {
  std::uint32_t x, y, z, w;
};

SPECULA_HD std::uint32_t high_product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);
#else
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(a) * b >> 32);
#endif
}

/// Philox4x32-10 (Salmon et al. 2011).
SPECULA_HD Words philox(Words counter, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  SPECULA_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t a = high_product(0xD2511F53u, counter.x), b = high_product(0xCD9E8D57u, counter.z);
    counter = {b ^ counter.y ^ k0, 0xCD9E8D57u * counter.z, a ^ counter.w ^ k1, 0xD2511F53u * counter.x};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// A word as a number in [0, 1): all 32 bits.
SPECULA_HD double uniform(std::uint32_t word) { return static_cast<double>(word) * 0x1p-32; }

}  // namespace detail

/// Where a uniform draw is asked for, as specula::RandomKey.
struct RandomKey {
  std::int32_t position, origin;
  RandomStream stream;
  std::uint32_t index;
};

/// One sequence's random numbers: uniform draws that depend on (seed, sequence, key) alone.
struct PhiloxRandom {
  std::uint64_t seed;
  std::uint32_t sequence;

  SPECULA_HD detail::Words words(RandomKey key) const {
    return detail::philox({static_cast<std::uint32_t>(key.position), static_cast<std::uint32_t>(key.origin),
                           static_cast<std::uint32_t>(key.stream) << 24 | (key.index & 0xFFFFFFu), sequence},
                          seed);
  }
  /// True with `probability`; 0 and NaN never.
  SPECULA_HD bool accept(double probability, RandomKey key) const {
    return detail::uniform(words(key).x) < probability;
  }
};

}  // namespace cuda
}  // namespace specula
