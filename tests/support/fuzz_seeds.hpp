// SPDX-License-Identifier: MIT
// Seeds of a fuzzer that are texts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace specula_test {

/// specula_fuzz_seed() (see fuzz_main.cpp) of these texts: writes the `index`th, cut to `capacity` bytes.
inline std::size_t write_seed(std::span<const std::string_view> seeds, std::uint32_t index,
                              std::uint8_t* data, std::size_t capacity) {
  if (index >= seeds.size()) return 0;
  const std::size_t size = std::min(capacity, seeds[index].size());
  std::memcpy(data, seeds[index].data(), size);
  return size;
}

}  // namespace specula_test
