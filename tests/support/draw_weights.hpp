// SPDX-License-Identifier: MIT
// Whether what production reads of weights agrees with what an enumeration reads of them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/distribution/random_source.hpp>

namespace specula_test {

/// What floats may differ by: a weight is within 1e-6 (distribution/row_kernels.hpp says so), and a rejection
/// that leaves a mass of m multiplies that by 1 / m. This is enough for m = 0.01.
inline constexpr double kFloats = 1e-4;

/// A token with its weight.
struct TokenWeight {
  specula::Token token;
  double weight;
};

/// Throws std::logic_error unless each of tile_masses() is the sum of the weights of `all`, the tokens of any
/// weight in ascending order, in that tile. PhiloxRandom chooses a tile by its mass; tests that read
/// weights(x) alone do not see a wrong one. Under Isa::reference both are sums of the same doubles.
template <class Weights>
void expect_masses(const Weights& weights, const std::vector<TokenWeight>& all) {
  const std::span<const double> masses = weights.tile_masses();
  const std::int32_t tiles = specula::detail::tile_count(weights.vocab());
  if (masses.size() != static_cast<std::size_t>(tiles))
    throw std::logic_error("weights with " + std::to_string(masses.size()) + " tile masses, must have " +
                           std::to_string(tiles));
  double largest = 1;
  for (const TokenWeight& w : all) largest = std::max(largest, w.weight);
  const double allowed = largest * (specula::detail::isa() == specula::Isa::reference ? 1e-12 : kFloats);
  auto at = all.begin();
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    double sum = 0;
    for (; at != all.end() && at->token / specula::detail::kTile == tile; ++at) sum += at->weight;
    const double mass = masses[static_cast<std::size_t>(tile)];
    if (!(std::abs(mass - sum) <= allowed))
      throw std::logic_error("tile " + std::to_string(tile) + " has weights of " + std::to_string(sum) +
                             " in all, but tile_masses() says " + std::to_string(mass));
  }
}

/// The tokens that have a weight. Throws std::logic_error unless the three answers of `weights` agree:
/// weights(x), fill(), which writes floats, and tile_masses().
template <class Weights>
std::vector<TokenWeight> agreed_weights(const Weights& weights) {
  static_assert(specula::DrawWeights<Weights>);
  constexpr std::int32_t kTile = specula::detail::kTile;
  std::vector<TokenWeight> all;
  double largest = 1;
  for (specula::Token x = 0; x < weights.vocab(); ++x)
    if (const double w = weights(x); !(w == 0)) {
      if (!(w > 0)) throw std::logic_error("token " + std::to_string(x) + " has a weight below 0, or NaN");
      all.push_back({x, w});
      largest = std::max(largest, w);
    }
  expect_masses(weights, all);
  std::array<float, static_cast<std::size_t>(kTile)> filled;
  auto at = all.begin();
  for (std::int32_t tile = 0; tile < specula::detail::tile_count(weights.vocab()); ++tile) {
    weights.fill(tile, filled.data());
    for (std::int32_t i = 0; i < kTile; ++i) {
      const double w = at != all.end() && at->token == tile * kTile + i ? (at++)->weight : 0.0;
      const auto got = static_cast<double>(filled[static_cast<std::size_t>(i)]);
      if (!(std::abs(got - w) <= kFloats * largest))
        throw std::logic_error("token " + std::to_string(tile * kTile + i) + " has weight " +
                               std::to_string(w) + ", but fill() writes " + std::to_string(got));
    }
  }
  return all;
}

}  // namespace specula_test
