// Masses of a row's tiles, merged and drawn from in one order, whoever measured them.
#pragma once

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

// mass(tile) is that of a tile. Every warp does this by itself, and all lanes get the same. Each lane sums
// consecutive chunks of 8 tiles, then the lanes are merged: the order depends on the number of tiles alone.

/// Tiles that a lane sums.
SPECULA_HD int tiles_of_lane(int tiles) { return 8 * ceil_div(tiles, 8 * 32); }

template <class Warp, class Mass>
SPECULA_HD double lane_mass(Warp warp, int tiles, Mass mass) {
  const int begin = warp.rank() * tiles_of_lane(tiles), end = smaller(tiles, begin + tiles_of_lane(tiles));
  double out = 0;
  for (int chunk = begin; chunk < end; chunk += 8) {
    double part = 0;
    for (int t = chunk; t < smaller(end, chunk + 8); ++t) part += mass(t);
    out += part;
  }
  return out;
}

template <class Warp, class Mass>
SPECULA_HD double total_mass(Warp warp, int tiles, Mass mass) {
  return warp.shuffle(inclusive_sum(warp, lane_mass(warp, tiles, mass)), warp.size() - 1);
}

/// The tile that `coin` in [0, 1) picks by mass; a tile without any is never picked. -1 if there is no mass.
template <class Warp, class Mass>
SPECULA_HD int pick_tile(Warp warp, int tiles, Mass mass, double coin) {
  const double mine = lane_mass(warp, tiles, mass), upto = inclusive_sum(warp, mine);
  const double wanted = coin * warp.shuffle(upto, warp.size() - 1);
  const std::uint32_t has = warp.ballot(mine > 0), hit = warp.ballot(mine > 0 && wanted < upto);
  if (has == 0) return -1;
  // Rounding may leave `wanted` beyond the last: then the last tile of mass is it.
  const int lane = hit ? first_lane(hit) : last_lane(has);
  int tile = -1;
  if (warp.rank() == lane) {
    double before = upto - mine;
    const int begin = lane * tiles_of_lane(tiles), end = smaller(tiles, begin + tiles_of_lane(tiles));
    for (int t = begin; t < end; ++t) {
      const double m = mass(t);
      if (!(m > 0)) continue;
      tile = t;
      before += m;
      if (wanted < before) break;
    }
  }
  return warp.shuffle(tile, lane);
}

/// Draws the token inside `tile`: fill(first, w) gives the weights of four tokens from `first` on, as often
/// as it is asked. -1 if no token has weight.
template <class Warp, class Fill>
SPECULA_HD std::int32_t draw_inside(Warp warp, int tile, double coin, Fill fill) {
  const int begin = tile * kTile + place_of<Order::run>(warp.rank(), 0);
  float w[4];
  double mine = 0;
  SPECULA_UNROLL
  for (int k = 0; k < 4; ++k) {
    fill(begin + 4 * k, w);
    SPECULA_UNROLL
    for (int e = 0; e < 4; ++e) mine += static_cast<double>(w[e]);
  }
  const double upto = inclusive_sum(warp, mine), wanted = coin * warp.shuffle(upto, warp.size() - 1);
  const std::uint32_t has = warp.ballot(mine > 0), hit = warp.ballot(mine > 0 && wanted < upto);
  if (has == 0) return -1;
  const int lane = hit ? first_lane(hit) : last_lane(has);
  std::int32_t token = -1;
  if (warp.rank() == lane) {
    double before = upto - mine;
    bool found = false;
    for (int k = 0; k < 4 && !found; ++k) {
      fill(begin + 4 * k, w);
      SPECULA_UNROLL
      for (int e = 0; e < 4; ++e)
        if (w[e] > 0 && !found) {  // the last token of weight, where rounding leaves `wanted` beyond it
          token = begin + 4 * k + e;
          before += static_cast<double>(w[e]);
          found = wanted < before;
        }
    }
  }
  return warp.shuffle(token, lane);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
