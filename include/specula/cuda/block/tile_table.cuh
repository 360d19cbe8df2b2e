// The tiles of a row, spread over the warps of a cluster; what each found, known to all.
#pragma once

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../thread/numbers.cuh"
#include "../warp/tile.cuh"
#include "../warp/tile_masses.cuh"

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

  /// `shared`: shared_bytes(vocab) of it, 8-byte aligned, at the same place in every block. A barrier of the
  /// cluster.
  SPECULA_HD TileTable(Cluster cluster, int vocab, unsigned char* shared)
      : cluster_(cluster), tiles_(tile_count(vocab)), tables_(reinterpret_cast<Entry*>(shared)) {
    cluster_.sync();  // nobody may write to a block that has not begun
  }

  SPECULA_HD int tiles() const { return tiles_; }
  SPECULA_HD Cluster cluster() const { return cluster_; }
  /// Entry of the last pass, and of the one before.
  SPECULA_HD Entry operator[](int tile) const { return tables_[flip_ * tiles_ + tile]; }
  SPECULA_HD Entry before(int tile) const { return tables_[(1 - flip_) * tiles_ + tile]; }

  /// entry(tile, raw) for every tile of `row`, a warp each; two tiles of a warp are on their way at once.
  template <class Element, class Make>
  SPECULA_HD void pass(Row<Element> row, Make entry) {
    constexpr int kAtOnce = 2;
    const auto block = cluster_.block();
    const int lane = block.warp().rank();
    const int step = cluster_.size() * block.warp_count();
    const int first = cluster_.rank() * block.warp_count() + block.warp_rank();
    flip_ = 1 - flip_;
    for (int begin = first; begin < tiles_; begin += kAtOnce * step) {
      RawTile<Element> raw[kAtOnce];
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        if (begin + i * step < tiles_) raw[i] = load_tile<Order::columns>(lane, row, begin + i * step);
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        if (begin + i * step < tiles_) put(begin + i * step, entry(begin + i * step, raw[i]));
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

  /// Sum of mass(entry) over the tiles, and the tile that a coin picks by it; see warp/tile_masses.cuh.
  template <class Mass>
  SPECULA_HD double total(Mass mass) const {
    return total_mass(cluster_.block().warp(), tiles_, [&](int tile) { return mass((*this)[tile]); });
  }
  template <class Mass>
  SPECULA_HD int pick(Mass mass, double coin) const {
    return pick_tile(
        cluster_.block().warp(), tiles_, [&](int tile) { return mass((*this)[tile]); }, coin);
  }

 private:
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
