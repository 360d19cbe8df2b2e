// SPDX-License-Identifier: MIT
// Philox with its words in arrays, as its known answers are written.
#pragma once

#include <specula/base/philox.hpp>

#include <array>
#include <cstdint>

namespace specula_test {

inline std::array<std::uint32_t, 4> philox(const std::array<std::uint32_t, 4>& counter,
                                           const std::array<std::uint32_t, 2>& key) {
  const specula::detail::Words words = specula::detail::philox(
      {counter[0], counter[1], counter[2], counter[3]}, std::uint64_t{key[1]} << 32 | key[0]);
  return {words.x, words.y, words.z, words.w};
}

}  // namespace specula_test
