// SPDX-License-Identifier: MIT
// Integer tile masses for sampling: sums are independent of order, and a uniform draw's word picks a tile
// exactly. Every function here is called by a whole warp and returns the same to all lanes.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

// A mass is a number of units, small enough that all of a row's fit 64 bits: of 2^-mass_bits(tiles) of the
// heaviest tile's power of two, and of at most 2^10 times that for a row's distribution, which knows only a
// bound of it. Rounding moves the boundary between two tiles by at most half a unit per tile: by 2^-36 of the
// row's mass for 131,072 tokens, by 2^-30 for a million; the resolution of a 32-bit uniform draw is 2^-32. A
// tile that rounds to 0 is never picked.

/// 62 but for the ceil(log2(tiles)) bits that the sum needs.
SPECULA_HD int mass_bits(int tiles) { return 61 - last_lane(static_cast<std::uint32_t>(tiles - 1)); }

/// Sum of mass(tile).
template <class Warp, class Mass>
SPECULA_HD std::uint64_t total_mass(Warp warp, int tiles, Mass mass) {
  std::uint64_t mine = 0;
  for (int t = warp.rank(); t < tiles; t += warp.size()) mine += mass(t);
  return reduce(warp, mine, Sum{});
}

/// Sum of value(tile) in one order for every launch.
template <class Warp, class Value>
SPECULA_HD double ordered_sum(Warp warp, int tiles, Value value) {
  double mine = 0;
  for (int t = warp.rank(); t < tiles; t += warp.size()) mine += value(t);
  return reduce(warp, mine, Sum{});
}

/// floor(word * total / 2^32).
SPECULA_HD std::uint64_t mass_of_word(std::uint32_t word, std::uint64_t total) {
  return word * (total >> 32) + (word * (total & 0xFFFFFFFFu) >> 32);
}

/// The tile that a uniform draw's word picks by mass; a tile of mass 0 is never picked. -1 if all masses are
/// 0.
template <class Warp, class Mass>
SPECULA_HD int pick_tile(Warp warp, int tiles, Mass mass, std::uint32_t word) {
  const int per = 8 * ceil_div(tiles, 8 * warp.size());  // consecutive tiles of a lane
  const int begin = warp.rank() * per;
  std::uint64_t mine = 0;
  for (int chunk = begin; chunk < smaller(tiles, begin + per); chunk += 8) {
    SPECULA_UNROLL
    for (int i = 0; i < 8; ++i) mine += chunk + i < tiles ? mass(chunk + i) : 0;
  }
  const std::uint64_t upto = inclusive_sum(warp, mine), total = warp.shuffle(upto, warp.size() - 1);
  if (total == 0) return -1;
  const std::uint64_t wanted = mass_of_word(word, total);  // below total
  const int lane = first_lane(warp.ballot(wanted < upto));
  std::uint64_t before = warp.shuffle(upto - mine, lane);
  for (int first = lane * per;; first += warp.size()) {  // one lane per tile
    const int t = first + warp.rank();
    const std::uint64_t up = inclusive_sum(warp, t < smaller(tiles, lane * per + per) ? mass(t) : 0);
    const std::uint32_t enough = warp.ballot(wanted < before + up);
    if (enough) return first + first_lane(enough);
    before += warp.shuffle(up, warp.size() - 1);
  }
}

/// Masses that are floats, not below 0, in units of 2^-exponent; those below 2^-126 count as 0.
struct FloatMasses {
  int exponent;
  bool none, nan;

  SPECULA_HD FloatMasses() : exponent(0), none(true), nan(false) {}
  template <class Warp, class Mass>
  SPECULA_HD FloatMasses(Warp warp, int tiles, Mass mass) : exponent(0), none(false), nan(false) {
    std::uint32_t most = 0;  // as bits, of which NaN has more than any number
    for (int t = warp.rank(); t < tiles; t += warp.size())
      most = larger(most, bits_of(mass(t)) & 0x7FFFFFFFu);
    most = warp.largest(most);
    nan = is_nan(float_of(most));
    none = float_of(most) < 0x1p-126f;
    if (!none && !nan) exponent = mass_bits(tiles) - larger(exponent_of_two(float_of(most)), -60);
  }
  SPECULA_HD std::uint64_t whole(float mass) const {
    return none || nan ? 0 : nearest_whole(product(mass, two_to(exponent)));
  }
  SPECULA_HD double value(std::uint64_t units) const {
    return static_cast<double>(units) * power_of_two(-static_cast<double>(exponent));
  }
};

/// Draws the token inside `tile`: fill(first, w) gives the weights of four tokens from `first` on. -1 if no
/// token has weight.
template <class Warp, class Fill>
SPECULA_HD std::int32_t draw_inside(Warp warp, int tile, double uniform, Fill fill) {
  const int begin = tile * kTile + place_of<Order::run, float>(warp.rank(), 0);
  float w[kPerLane];
  double four[4];
  SPECULA_UNROLL
  for (int k = 0; k < 4; ++k) {
    float part[4];
    fill(begin + 4 * k, part);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) w[4 * k + e] = part[e];
    four[k] = (static_cast<double>(part[0]) + static_cast<double>(part[1])) +
              (static_cast<double>(part[2]) + static_cast<double>(part[3]));
  }
  const double mine = (four[0] + four[1]) + (four[2] + four[3]);
  const double upto = inclusive_sum(warp, mine), wanted = uniform * warp.shuffle(upto, warp.size() - 1);
  const std::uint32_t has = warp.ballot(mine > 0), hit = warp.ballot(mine > 0 && wanted < upto);
  if (has == 0) return -1;
  // Rounding may leave `wanted` above the sum of all weights: then the last token of weight is picked.
  const int lane = hit ? first_lane(hit) : last_lane(has);
  const double before = warp.shuffle(upto - mine, lane);
  float one = 0;  // one lane per token
  SPECULA_UNROLL
  for (int i = 0; i < kPerLane; ++i) {
    const float weight = warp.shuffle(w[i], lane);
    if (warp.rank() == i) one = weight;
  }
  const double up = inclusive_sum(warp, static_cast<double>(one));
  const std::uint32_t some = warp.ballot(one > 0), enough = warp.ballot(one > 0 && wanted < before + up);
  return tile * kTile + kPerLane * lane + (enough ? first_lane(enough) : last_lane(some));
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
