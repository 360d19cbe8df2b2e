// The law of a row from the statistics of its tiles, whoever measured them.
#pragma once

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../thread/exponent.cuh"
#include "../types.cuh"
#include "tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A row at a temperature, before its masses are summed. Every warp does this by itself, and all lanes get
/// the same. `maximum(tile)` and `sum(tile)` are those of TileStats, with this `scale`; sums do not matter
/// where the temperature is 0.
struct TileLaw {
  double inv_t;  // 1 where the temperature is 0
  float scale;   // logits as exponents of 2
  bool greedy;   // the temperature is 0
  float top;     // largest logit
  double unit;   // of its tile

  SPECULA_HD explicit TileLaw(float temperature)
      : inv_t(temperature == 0.0f ? 1.0 : inverse(temperature)),
        scale(static_cast<float>(inv_t * kLog2E)),
        greedy(temperature == 0.0f),
        top(-infinity()),
        unit(0) {}

  /// Finds `top` and, of a good row, `unit`.
  template <class Warp, class Maximum, class Sum>
  SPECULA_HD Status look(Warp warp, int tiles, Maximum maximum, Sum sum) {
    bool nan = false;
    for (int t = warp.rank(); t < tiles; t += warp.size()) {
      top = max_or_nan(top, maximum(t));
      nan = nan || is_nan(sum(t));
    }
    for (int mask = warp.size() / 2; mask > 0; mask /= 2) top = max_or_nan(top, warp.shuffle_xor(top, mask));
    nan = warp.ballot(nan) != 0;
    if (is_bad_logit(top)) return Status::not_a_number;
    if (top == -infinity()) return Status::empty_row;
    if (greedy) return Status::ok;
    const double most = 1e38 * (1 + 1e-6);  // the margin is for 1e38 * temperature in floats
    if (nan || static_cast<double>(top) * inv_t > most || static_cast<double>(top) * inv_t < -most)
      return Status::overflow;
    unit = unit_of(top, scale);
    return Status::ok;
  }

  /// First tile with the largest logit.
  template <class Warp, class Maximum>
  SPECULA_HD int top_tile(Warp warp, int tiles, Maximum maximum) const {
    int tile = tiles;
    for (int t = warp.rank(); t < tiles; t += warp.size())
      if (maximum(t) == top) tile = smaller(tile, t);
    return reduce(warp, tile, Min{});
  }

  /// Log of the row's normaliser relative to the largest logit, where `total` are the masses in units of
  /// 2^unit.
  SPECULA_HD double log_z(double total) const {
    return (log2(total) - static_cast<double>(rest_of(top, scale))) / kLog2E;
  }
};

/// A tile's mass in units of 2^unit.
SPECULA_HD double tile_mass(float maximum, float sum, float scale, double unit) {
  if (!(sum > 0)) return 0;
  return static_cast<double>(sum) * power_of_two(unit_of(maximum, scale) - unit);
}
/// Below this all weights of a tile would underflow: no coin may choose it.
constexpr double kLeastMass = 0x1p-100;

}  // namespace detail
}  // namespace cuda
}  // namespace specula
