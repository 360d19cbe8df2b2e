// The best tokens of a row and their probabilities: one read of it by a whole cluster, and a second one of
// no more tiles than tokens are wanted.
#pragma once

#include <utility>

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../types.cuh"
#include "../warp/tile.cuh"
#include "row_scan.cuh"
#include "select.cuh"

namespace specula {
namespace cuda {
namespace detail {

constexpr int kMostTop = 32;

/// A token of the best, with its softmax probability at temperature 1, which is never above 1 whatever the
/// rounding: along a path they multiply to what never rises.
struct TopToken {
  Token token;
  double prob;
};

template <class Cluster>
class RowTopK {
 public:
  using Block = decltype(std::declval<Cluster>().block());

  /// 16-byte aligned shared memory of each block to find the `k` best of rows, and to select among `more`.
  SPECULA_HD static std::size_t shared_bytes(int vocab, int k, int more) {
    return select_bytes(vocab, k, more) + 2 * sizeof(Ranked) * static_cast<std::size_t>(k) +
           RowScan<Cluster>::shared_bytes(vocab);
  }
  /// k in [1, kMostTop]. A barrier of the cluster.
  SPECULA_HD RowTopK(Cluster cluster, int vocab, int k, int more, unsigned char* shared)
      : cluster_(cluster),
        select_(cluster.block(), shared),
        tiles_(reinterpret_cast<Ranked*>(shared + select_bytes(vocab, k, more))),
        best_(tiles_ + k),
        scan_(cluster, vocab, reinterpret_cast<unsigned char*>(best_ + k)),
        k_(k) {}

  /// Finds them, ties to the lower token, -infinity never; for the cluster's first block only: others may
  /// leave then. Another status than `ok` if the row is no law.
  template <class Element>
  SPECULA_HD Status find(Row<Element> row) {
    const RowStats law = scan_.law(row, SamplingParams{});
    found_ = 0;
    log_z_ = law.log_z;
    if (law.status != Status::ok || cluster_.rank() != 0) return law.status;
    // Each of the k best tiles, by their largest logits, has a token that comes before all of any tile that
    // comes after it: so the i-th (from 0) has no more than k - i of the best tokens, and others have none.
    const auto& table = scan_.table();
    const int tiles = select_.best(
        table.tiles(), [&](int t) { return rank_value(table[t].a); }, k_, tiles_);
    const std::uint64_t bound = tiles == k_ ? tiles_[k_ - 1].value : 1;
    select_.clear();
    const Block block = cluster_.block();
    for (int i = block.warp_rank(); i < tiles; i += block.warp_count())
      gather(row, tiles_[i].index, k_ - i, bound);
    found_ = select_.first(k_, best_);
    return law.status;
  }
  /// How many there are.
  SPECULA_HD int found() const { return found_; }
  SPECULA_HD TopToken operator[](int i) const {
    const double log = static_cast<double>(of_key(static_cast<std::uint32_t>(best_[i].value))) - log_z_;
    return {best_[i].index, smaller(1.0, exp(log))};
  }

  /// The first block's.
  SPECULA_HD Select<Block>& select() { return select_; }
  /// (k) for what is selected; the best tokens are lost.
  SPECULA_HD Ranked* selected() { return best_; }

 private:
  SPECULA_HD static std::size_t select_bytes(int vocab, int k, int more) {
    return Select<Block>::shared_bytes(larger(more, larger(tile_count(vocab), k * (k + 1) / 2)));
  }

  /// Adds the `most` best of a tile, by a warp, if they are no less than `bound`.
  template <class Element>
  SPECULA_HD void gather(Row<Element> row, int tile, int most, std::uint64_t bound) {
    const auto warp = cluster_.block().warp();
    const int lane = warp.rank();
    float x[kPerLane];
    unpack<Order::columns>(lane, load_tile<Order::columns>(lane, row, tile), row, tile, x);
    for (int n = 0; n < most; ++n) {
      std::uint64_t top = 0;  // value, then the lower place
      SPECULA_UNROLL
      for (int i = 0; i < kPerLane; ++i) {
        const auto place = static_cast<std::uint64_t>(place_of<Order::columns>(lane, i / 4) + i % 4);
        top = larger(top, rank_value(x[i]) << 16 | (0xFFFF - place));
      }
      top = reduce(warp, top, Max{});
      if (top >> 16 < bound) break;
      const int place = 0xFFFF - static_cast<int>(top & 0xFFFF);
      SPECULA_UNROLL
      for (int i = 0; i < kPerLane; ++i)
        if (place_of<Order::columns>(lane, i / 4) + i % 4 == place) x[i] = -infinity();
      if (lane == 0) select_.add({top >> 16, tile * kTile + place});
    }
  }

  Cluster cluster_;
  Select<Block> select_;
  Ranked *tiles_, *best_;  // (k)
  RowScan<Cluster> scan_;
  int k_, found_ = 0;
  double log_z_ = 0;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
