// SPDX-License-Identifier: MIT
// Counter-based random numbers (Philox4x32-10), the library's only source of randomness: each uniform draw is
// a function of its key alone.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "specula/base/random_key.hpp"
#include "specula/base/rows.hpp"
#include "specula/distribution/gumbel_argmax.hpp"
#include "specula/distribution/row_math.hpp"
#include "specula/distribution/row_scan.hpp"

namespace specula {

namespace detail {

/// Draws a token in two levels: `tile_uniform` selects a tile by its mass, `token_uniform` the token within
/// it. A token of weight 0 is never drawn. Throws std::runtime_error if the weights are empty or not a
/// number. Cost: the tiles' masses, and one tile of weights.
template <class Weights>
Token draw_two_level(const Weights& weights, double tile_uniform, double token_uniform) {
  const std::span<const double> masses = weights.tile_masses();
  const double total = merge_tiles(masses);
  if (!(total > 0) || !(total < std::numeric_limits<double>::infinity()))
    throw std::runtime_error("cannot draw a token: the weights are empty or not a number");
  std::size_t tile = masses.size();
  const double wanted = tile_uniform * total;
  double before = 0;
  for (std::size_t chunk = 0; chunk < masses.size(); chunk += 8) {
    const std::span<const double> part =
        masses.subspan(chunk, std::min<std::size_t>(8, masses.size() - chunk));
    double sum = 0;
    bool found = false;
    for (std::size_t t = 0; t < part.size() && !found; ++t) {
      if (!(part[t] > 0)) continue;
      tile = chunk + t;  // if rounding puts `wanted` above the total, the last tile with mass
      sum += part[t];
      found = wanted < before + sum;
    }
    if (found) break;
    before += sum;
  }
  std::array<float, kTile> w;
  weights.fill(static_cast<std::int32_t>(tile), w.data());
  // Independent sums of pieces: one chain of 512 dependent additions takes longer than the tile's
  // exponentials.
  constexpr std::size_t kPiece = 16;
  std::array<double, kTile / kPiece> sums{};
  for (std::size_t p = 0; p < sums.size(); ++p)
    for (std::size_t i = 0; i < kPiece; ++i) sums[p] += static_cast<double>(w[p * kPiece + i]);
  double inside = 0;
  for (const double sum : sums) inside += sum;
  const double target = token_uniform * inside;
  Token token = kNoToken;
  double seen = 0;
  bool found = false;
  for (std::size_t p = 0; p < sums.size() && !found; ++p) {
    if (!(sums[p] > 0)) continue;
    const bool here = target < seen + sums[p];
    double inner = seen;
    for (std::size_t i = p * kPiece; i < (p + 1) * kPiece && !found; ++i) {
      if (!(w[i] > 0)) continue;
      // if rounding puts the target above the sum, the last token with weight
      token = static_cast<Token>(tile * kTile + i);
      inner += static_cast<double>(w[i]);
      found = here && target < inner;
    }
    found = found || here;
    seen += sums[p];
  }
  if (token == kNoToken) throw std::runtime_error("cannot draw a token: a tile of mass holds no token");
  return token;
}

}  // namespace detail

/// What a random source draws a token from: weights that need not sum to 1. `tile_masses()` has a sum of
/// weights per 512 tokens, in order; fill(tile, out) writes those 512 weights, 0 beyond the vocabulary.
/// Examples: detail::TokenWeights, which TargetDistributions::weights() returns, and detail::Residual.
template <class W>
concept DrawWeights = requires(const W& weights, Token token, std::int32_t tile, float* out) {
  { weights.vocab() } -> std::convertible_to<std::int32_t>;
  { weights(token) } -> std::convertible_to<double>;
  { weights.tile_masses() } -> std::convertible_to<std::span<const double>>;
  weights.fill(tile, out);
};

/// A source of uniform draws, keyed by RandomKey. It draws from weights tile by tile.
template <class C>
concept RandomSource = requires(C& c, const RandomKey& key, const detail::TokenWeights& weights) {
  { c.accept(0.5, key) } -> std::same_as<bool>;
  { c.draw(weights, key) } -> std::same_as<Token>;
};

/// A random source that also draws by Gumbel noise, one random number per token, which makes draws from two
/// similar distributions at the same key mostly equal.
template <class C>
concept NoiseSource = RandomSource<C> &&
    requires(C& c, const RandomKey& key, const detail::TokenWeights& weights) {
  { c.draw_by_noise(weights, key) } -> std::same_as<Token>;
};

/// Uniform draws from Philox4x32-10: each is a function of (seed, sequence, key), independent of earlier
/// draws, of the batch and of the machine. Copies are cheap and give the same draws.
class PhiloxRandom {
 public:
  /// `seed`: of all texts of a run. `sequence`: one per text, so that texts draw independently.
  explicit PhiloxRandom(std::uint64_t seed, std::uint32_t sequence = 0) : seed_(seed), sequence_(sequence) {}
  std::uint64_t seed() const { return seed_; }          ///< as given
  std::uint32_t sequence() const { return sequence_; }  ///< as given

  /// True with the given probability: always at 1 and above, never at 0 and for NaN.
  bool accept(double probability, const RandomKey& key) {
    return detail::uniform(detail::words_of(key, seed_, sequence_).x) < probability;
  }

  /// Draws a token with probability proportional to its weight; see detail::draw_two_level.
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    static_assert(DrawWeights<Weights>,
                  "weights to draw from need vocab(), operator()(token), tile_masses() and fill(tile, out): "
                  "see specula::DrawWeights");
    const detail::Words w = detail::words_of(key, seed_, sequence_);
    return detail::draw_two_level(weights, detail::uniform(w.x), detail::uniform(w.y));
  }

  /// The same by Gumbel-max sampling, with one random number per token: token x uses word x % 4 of the key
  /// whose index is x / 4. Draws from two distributions p and q at the same key are equal with probability at
  /// least (1 - TV) / (1 + TV), where TV = sum |p - q| / 2. See detail::gumbel_argmax.
  template <class Weights>
  Token draw_by_noise(const Weights& weights, RandomKey key) {
    return detail::gumbel_argmax(
        weights, [&](Token from, const float* tokens_weights, float bound, std::uint32_t* words) {
          key.index = static_cast<std::uint32_t>(from) / 4;
          const detail::Words first = detail::counter_of(key, sequence_);
          return detail::noise_block(
              {{first.x, first.y, first.z, first.w},
               {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)}},
              tokens_weights, bound, words);
        });
  }

  /// The four raw Philox words of a key: its counter is (position, origin, stream and index, sequence), its
  /// key the seed.
  std::array<std::uint32_t, 4> words(const RandomKey& key) const {
    const detail::Words w = detail::words_of(key, seed_, sequence_);
    return {w.x, w.y, w.z, w.w};
  }

 private:
  std::uint64_t seed_;
  std::uint32_t sequence_;
};

namespace detail {

/// Compiles if `C` is a random source and, for shared noise, a NoiseSource.
template <class C, bool by_noise = false>
constexpr bool explain_random_source() {
  static_assert(
      RandomSource<C>,
      "this is no random source: pass specula::PhiloxRandom{seed}, or a type with `bool accept(double "
      "probability, const RandomKey&)` and `Token draw(const Weights&, const RandomKey&)` (a RandomSource)");
  static_assert(
      !by_noise || NoiseSource<C>,
      "shared noise needs a random source with `Token draw_by_noise(const Weights&, const RandomKey&)` too "
      "(a NoiseSource), such as specula::PhiloxRandom");
  return true;
}

}  // namespace detail
}  // namespace specula
