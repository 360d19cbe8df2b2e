// SPDX-License-Identifier: MIT
// The distribution of a row from the statistics of its tiles.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/exponent.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/primitives/warp/tile_masses.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The scale that turns logits into exponents of 2; that of temperature 1 where it is 0.
SPECULA_HD double inverse_or_one(float temperature) {
  return temperature == 0.0f ? 1.0 : inverse(temperature);
}
SPECULA_HD float scale_of(float temperature) {
  return static_cast<float>(inverse_or_one(temperature) * kLog2E);
}

/// The masses of a row's tiles, from their maxima and sums at this scale.
struct RowMasses {
  double unit;  // unit_of the row's largest logit
  float scale;
  int exponent;  // masses are in units of 2^(unit - exponent)

  SPECULA_HD RowMasses() : unit(0), scale(0), exponent(0) {}
  /// A tile's sum is below 2^10 in its own unit.
  SPECULA_HD RowMasses(float top, float scale_of_tiles, int tiles)
      : unit(unit_of(top, scale_of_tiles)), scale(scale_of_tiles), exponent(mass_bits(tiles) - 9) {}

  /// How many octaves a tile's unit is below the row's; more than anything weighs where that is a lot.
  SPECULA_HD int below(float maximum) const {
    const float scaled = product(maximum, scale);
    if (unit < static_cast<double>(kPlain) / 2 && unit > static_cast<double>(kPlain) / -2)
      return static_cast<int>(static_cast<float>(unit) - nearest(larger(scaled, -kPlain)));
    const double octaves = unit - unit_of(maximum, scale);
    return octaves < 1000 ? static_cast<int>(octaves) : 1000;
  }
  SPECULA_HD std::uint64_t operator()(float maximum, float sum) const {
    return nearest_whole(product(sum, two_to(larger(exponent - below(maximum), -126))));
  }
  SPECULA_HD double value(std::uint64_t mass) const {
    return static_cast<double>(mass) * power_of_two(-exponent);
  }
  /// The same as a float, in units of 2^unit.
  SPECULA_HD float as_float(float maximum, float sum) const {
    return product(sum, two_to(larger(-below(maximum), -126)));
  }
};

/// A row's distribution from its tiles, at a temperature: `maximum(tile)`, and `sum(tile)`, which does not
/// matter where the temperature is 0. By a warp.
struct TileDistribution {
  Status status;
  float top;         // largest logit
  RowMasses masses;  // of a good row at a temperature above 0, whose
  double total;      // is their sum, in units of 2^unit

  template <class Warp, class Maximum, class Sum>
  SPECULA_HD TileDistribution(Warp warp, int tiles, float temperature, Maximum maximum, Sum sum)
      : status(Status::ok), top(-infinity()), total(0) {
    for (int t = warp.rank(); t < tiles; t += warp.size()) top = max_or_nan(top, maximum(t));
    top = warp_maximum(warp, top);
    const double scaled = static_cast<double>(top) * inverse_or_one(temperature);
    const double most = 1e38 * (1 + 1e-6);  // the margin is for 1e38 * temperature in floats
    if (is_bad_logit(top))
      status = Status::not_a_number;
    else if (top == -infinity())
      status = Status::empty_row;
    else if (temperature != 0.0f && (scaled > most || scaled < -most))
      status = Status::overflow;
    if (status != Status::ok || temperature == 0.0f) return;
    masses = RowMasses(top, scale_of(temperature), tiles);
    total = masses.value(total_mass(warp, tiles, [&](int t) { return masses(maximum(t), sum(t)); }));
  }

  /// First tile with the largest logit.
  template <class Warp, class Maximum>
  SPECULA_HD int top_tile(Warp warp, int tiles, Maximum maximum) const {
    int tile = tiles;
    for (int t = warp.rank(); t < tiles; t += warp.size())
      if (maximum(t) == top) tile = smaller(tile, t);
    return tiles - static_cast<int>(warp.largest(static_cast<std::uint32_t>(tiles - tile)));
  }

  /// Log of the row's normaliser relative to the largest logit.
  SPECULA_HD double log_z() const {
    return (log2(total) - static_cast<double>(rest_of(top, masses.scale))) / kLog2E;
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
