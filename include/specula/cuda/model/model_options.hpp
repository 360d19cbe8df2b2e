// SPDX-License-Identifier: MIT
// Options of a model on a device: sizes, and the height of its products.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"

namespace specula::cuda {

/// Sizes of a model on a device, fixed when it is made.
struct ModelOptions {
  std::int32_t capacity = 2048;      ///< tokens of a text, committed and speculative together
  std::int32_t max_nodes = 64;       ///< speculative tokens of a text at a time
  std::int32_t slots = 1;            ///< texts at once
  std::int32_t prefill_chunk = 512;  ///< tokens of a prompt in a pass
  /// Rows of a pass of nodes, of all texts together: 64, 128, 256 or 512. 0: the least that holds max_nodes.
  /// A call with more runs several passes. With PaddedProducts rows have the same bits in all models of one
  /// height and prefill_chunk.
  std::int32_t height = 0;
  bool features = false;  ///< features() are kept
};

namespace detail {

constexpr std::array kHeights{64, 128, 256, 512};

/// The least of the heights that holds `rows`.
inline int height_of(int rows) {
  for (const int height : kHeights)
    if (rows <= height) return height;
  return kHeights.back();
}

/// The options with a height. Throws std::invalid_argument, naming the option, for one that is out of range.
inline ModelOptions checked(ModelOptions options) {
  const auto expect = [](const char* what, std::int32_t value, std::int32_t least, std::int32_t most) {
    if (value < least || value > most)
      throw std::invalid_argument("ModelOptions::" + std::string(what) + " is " + std::to_string(value) +
                                  ", must be " + std::to_string(least) + " to " + std::to_string(most));
  };
  expect("capacity", options.capacity, 1, 1 << 24);
  expect("max_nodes", options.max_nodes, 1, kHeights.back());
  expect("slots", options.slots, 1, 4096);
  expect("prefill_chunk", options.prefill_chunk, 1, kHeights.back());
  if (options.height == 0) options.height = height_of(options.max_nodes);
  if (std::find(kHeights.begin(), kHeights.end(), options.height) == kHeights.end())
    throw std::invalid_argument("ModelOptions::height is " + std::to_string(options.height) +
                                ", must be 64, 128, 256 or 512");
  return options;
}

}  // namespace detail

}  // namespace specula::cuda
