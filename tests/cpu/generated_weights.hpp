// SPDX-License-Identifier: MIT
// Weights that are a function of a tensor's name and of the number in it, so that scripts in other languages
// make the same: transformers/logits.py and eagle3/heads.py have the formula, too.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "specula/base/philox.hpp"

namespace specula_test {

/// Uniform: of variance 1 / columns; norms around 1; biases around 0.
inline std::vector<float> generated_weights(const std::string& name, const std::vector<std::int64_t>& shape) {
  std::uint64_t key = 0xcbf29ce484222325u;  // FNV-1a
  for (const char byte : name) key = (key ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  const bool bias = name.ends_with(".bias");
  std::vector<float> out;
  for (std::int64_t i = 0; i < shape.front() * (shape.size() == 2 ? shape.back() : 1); ++i) {
    const auto words = specula::detail::philox({static_cast<std::uint32_t>(i / 4), 0, 0, 0}, key);
    const std::uint32_t word[] = {words.x, words.y, words.z, words.w};
    const double uniform = word[i % 4] * 0x1p-31 - 1;
    out.push_back(static_cast<float>(shape.size() == 2
                                         ? uniform * std::sqrt(3.0 / static_cast<double>(shape.back()))
                                     : bias ? 0.5 * uniform
                                            : 1 + 0.25 * uniform));
  }
  return out;
}

}  // namespace specula_test
