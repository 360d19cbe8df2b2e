// The tiles of a row, spread over the warps of a cluster; what each found, known to all.
#pragma once

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../thread/numbers.cuh"
#include "../warp/tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A table of two floats a tile in every block's shared memory, twice: a fast block may fill the next one
/// while a slow one still reads the last, so a pass needs one barrier of the cluster. Every warp then merges
/// the table by itself, and in one order, whatever the cluster: so all threads know the same and decide
/// alike.
template <class Cluster>
class TileTable {
 public:
  struct Entry {
    float a, b;
  };

  SPECULA_HD static std::size_t shared_bytes(int vocab) {
    return 2 * sizeof(Entry) * static_cast<std::size_t>(tile_count(vocab));
  }

  /// `shared`: shared_bytes(vocab) of it, 8-byte aligned, at the same place in every block.
  SPECULA_HD TileTable(Cluster cluster, int vocab, unsigned char* shared)
      : cluster_(cluster), tiles_(tile_count(vocab)), tables_(reinterpret_cast<Entry*>(shared)) {}

  SPECULA_HD int tiles() const { return tiles_; }
  SPECULA_HD Cluster cluster() const { return cluster_; }
  /// Entry of the last pass, and of the one before.
  SPECULA_HD Entry operator[](int tile) const { return tables_[flip_ * tiles_ + tile]; }
  SPECULA_HD Entry before(int tile) const { return tables_[(1 - flip_) * tiles_ + tile]; }

  /// entry(tile, raw) for every tile of `row`, a warp each; rows are read with several tiles on their way.
  /// `wanted` says which tiles are read at all, the others' entries are `otherwise`.
  template <class Element, class Wanted, class Make>
  SPECULA_HD void pass(Row<Element> row, Wanted wanted, Entry otherwise, Make entry) {
    constexpr int kAtOnce = 2;
    const auto block = cluster_.block();
    const int lane = block.warp().rank();
    const int step = cluster_.size() * block.warp_count();
    const int first = cluster_.rank() * block.warp_count() + block.warp_rank();
    flip_ = 1 - flip_;
    for (int begin = first; begin < tiles_; begin += kAtOnce * step) {
      RawTile<Element> raw[kAtOnce];
      bool reads[kAtOnce];
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int tile = begin + i * step;
        reads[i] = tile < tiles_ && wanted(tile);
        if (reads[i]) raw[i] = load_tile<Order::columns>(lane, row, tile);
      }
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int tile = begin + i * step;
        if (tile < tiles_) put(tile, reads[i] ? entry(tile, raw[i]) : otherwise);
      }
    }
    cluster_.sync();
  }
  /// The same where no row is read: entry(tile).
  template <class Make>
  SPECULA_HD void pass(Make entry) {
    const auto block = cluster_.block();
    const int step = cluster_.size() * block.warp_count();
    flip_ = 1 - flip_;
    for (int tile = cluster_.rank() * block.warp_count() + block.warp_rank(); tile < tiles_; tile += step)
      put(tile, entry(tile));
    cluster_.sync();
  }

  /// Sum of mass(entry) over the tiles. Each lane sums consecutive chunks of 8 tiles, then the lanes are
  /// merged.
  template <class Mass>
  SPECULA_HD double total(Mass mass) const {
    const auto warp = cluster_.block().warp();
    return warp.shuffle(inclusive_sum(warp, lane_mass(mass)), warp.size() - 1);
  }

  /// The tile that `coin` in [0, 1) picks by mass; a tile without any is never picked. -1 if there is no
  /// mass.
  template <class Mass>
  SPECULA_HD int pick(Mass mass, double coin) const {
    const auto warp = cluster_.block().warp();
    const double mine = lane_mass(mass), upto = inclusive_sum(warp, mine);
    const double wanted = coin * warp.shuffle(upto, warp.size() - 1);
    const std::uint32_t has = warp.ballot(mine > 0), hit = warp.ballot(mine > 0 && wanted < upto);
    if (has == 0) return -1;
    // Rounding may leave `wanted` beyond the last: then the last tile of mass is it.
    const int lane = hit ? first_lane(hit) : last_lane(has);
    int tile = -1;
    if (warp.rank() == lane) {
      double before = upto - mine;
      const int begin = lane * per_lane(), end = smaller(tiles_, begin + per_lane());
      for (int t = begin; t < end; ++t) {
        const double m = mass((*this)[t]);
        if (!(m > 0)) continue;
        tile = t;
        before += m;
        if (wanted < before) break;
      }
    }
    return warp.shuffle(tile, lane);
  }

 private:
  SPECULA_HD int per_lane() const { return 8 * ceil_div(tiles_, 8 * 32); }
  template <class Mass>
  SPECULA_HD double lane_mass(Mass mass) const {
    const int begin = cluster_.block().warp().rank() * per_lane(), end = smaller(tiles_, begin + per_lane());
    double out = 0;
    for (int chunk = begin; chunk < end; chunk += 8) {
      double part = 0;
      for (int t = chunk; t < smaller(end, chunk + 8); ++t) part += mass((*this)[t]);
      out += part;
    }
    return out;
  }
  SPECULA_HD void put(int tile, Entry entry) {
    const int lane = cluster_.block().warp().rank();
    if (lane < cluster_.size()) *cluster_.map(tables_ + flip_ * tiles_ + tile, lane) = entry;
  }

  Cluster cluster_;
  int tiles_, flip_ = 0;
  Entry* tables_;  // (2, tiles)
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
