// Philox4x32-10 (Salmon et al. 2011).
#pragma once

#include <array>
#include <cstdint>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

inline constexpr std::uint32_t kPhiloxMultiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr std::uint32_t kPhiloxWeyl[2] = {0x9E3779B9u, 0xBB67AE85u};

inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{kPhiloxMultiplier[0]} * counter[0],
                        b = std::uint64_t{kPhiloxMultiplier[1]} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + kPhiloxWeyl[0], key[1] + kPhiloxWeyl[1]};
  }
  return counter;
}

}  // namespace specula::detail
