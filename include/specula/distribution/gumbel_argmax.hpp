// SPDX-License-Identifier: MIT
// Gumbel-max sampling as an exponential race.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>

#include "specula/distribution/noise_kernels.hpp"
#include "specula/distribution/row_math.hpp"

namespace specula::detail {

/// The token x with the smallest time E(x) / w(x), E(x) = -log of a uniform draw in (0, 1): x wins with
/// probability w(x) / sum w. This is the argmax of log w(x) + Gumbel noise. Ties go to the lower token; a
/// token of weight 0 never wins. The weights need not sum to 1. `noise(x, weights, bound, words)` writes
/// the words of the 64 tokens from x on and returns the bits of those that may win, as noise_block() does.
///
/// Throws std::runtime_error if the weights are empty or not a number. Cost: weights and noise of the
/// blocks that can win, and a logarithm for a few of their tokens. With AVX2 1.1 ns per token (2,048
/// tokens: 2.5 us; 128,256: 135 us, under top-k 50 12 us), portable 4 to 9 ns; a logarithm per token would
/// take 9 ns.
template <class Weights, class Noise>
Token gumbel_argmax(const Weights& weights, Noise noise) {
  const std::span<const double> masses = weights.tile_masses();
  const double total = merge_tiles(masses);
  if (!(total > 0) || !(total < std::numeric_limits<double>::infinity()))
    throw std::runtime_error("cannot draw a token: the weights are empty or not a number");

  // -log u >= 1 - u: a logarithm is needed only where 1 - u is below w * (the best time so far).
  double best = std::numeric_limits<double>::infinity();
  float bound = std::numeric_limits<float>::infinity();  // best, or slightly above
  Token winner = kNoToken;
  std::array<float, kTile> w;
  std::array<std::uint32_t, kNoiseBlock> words;
  const auto run = [&](std::size_t tile) {
    weights.fill(static_cast<std::int32_t>(tile), w.data());
    for (std::size_t at = 0; at < w.size(); at += kNoiseBlock) {
      const auto from = static_cast<Token>(tile * kTile + at);
      std::uint64_t bits = noise(from, w.data() + at, bound, words.data());
      for (; bits != 0; bits &= bits - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(bits));
        const double weight = static_cast<double>(w[at + i]),
                     u = (static_cast<double>(words[i]) + 0.5) * 0x1p-32;
        if (!(1 - u <= weight * best)) continue;  // also true at weight 0: 0 * infinity is NaN
        const double time = -std::log(u) / weight;
        const Token x = from + static_cast<Token>(i);
        if (time > best || (time == best && x > winner)) continue;
        best = time, winner = x;
        const double above = best * (1 + 0x1p-20);
        bound = above < static_cast<double>(std::numeric_limits<float>::max())
                    ? std::max(static_cast<float>(above), std::numeric_limits<float>::min())
                    : std::numeric_limits<float>::infinity();
      }
    }
  };
  const auto heaviest =
      static_cast<std::size_t>(std::max_element(masses.begin(), masses.end()) - masses.begin());
  run(heaviest);  // first: then most of the others are too light to win
  for (std::size_t t = 0; t < masses.size(); ++t)
    if (t != heaviest && masses[t] * best > static_cast<double>(kMinTime)) run(t);
  if (winner == kNoToken) throw std::runtime_error("cannot draw a token: a tile of mass holds no token");
  return winner;
}

}  // namespace specula::detail
