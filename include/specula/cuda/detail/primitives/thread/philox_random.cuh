// SPDX-License-Identifier: MIT
// Philox uniform draws on the device: the words of specula::PhiloxRandom for the same key.
#pragma once

#include <cstdint>

#include "specula/base/random_key.hpp"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {
namespace detail {

using specula::detail::uniform;
using specula::detail::Words;

}  // namespace detail

/// One sequence's random numbers: uniform draws that depend on (seed, sequence, key) alone.
struct PhiloxRandom {
  std::uint64_t seed;
  std::uint32_t sequence;

  SPECULA_HD detail::Words words(const RandomKey& key) const {
    return specula::detail::words_of(key, seed, sequence);
  }
  /// True with `probability`; 0 and NaN never.
  SPECULA_HD bool accept(double probability, const RandomKey& key) const {
    return detail::uniform(words(key).x) < probability;
  }
};

}  // namespace cuda
}  // namespace specula
