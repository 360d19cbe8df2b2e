// The best tokens of a row, after one scan of it by a cluster.
#pragma once

#include <utility>

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../types.cuh"
#include "../warp/tile.cuh"
#include "row_scan.cuh"
#include "select.cuh"
#include "tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The k largest logits of a row that a cluster has just scanned, ties to the lower token, -infinity never.
/// Each block finds them for itself, and all find the same. Cost: one read of no more than k tiles, and two
/// selections: among all tiles by their maxima, and among at most k (k + 1) / 2 tokens.
template <class Block>
class TopK {
 public:
  /// 16-byte aligned shared memory to find the `k` best of rows, and to select among `more` afterwards.
  SPECULA_HD static std::size_t shared_bytes(int vocab, int k, int more = 0) {
    return round_up(select_bytes(vocab, k, more) + sizeof(Ranked) * static_cast<std::size_t>(k),
                    std::size_t{16});
  }
  /// k >= 0.
  SPECULA_HD TopK(Block block, int vocab, int k, int more, unsigned char* shared)
      : block_(block),
        select_(block, shared),
        best_(reinterpret_cast<Ranked*>(shared + select_bytes(vocab, k, more))),
        k_(k) {}

  /// Finds them; `table` holds the tiles' maxima, and NaN is nowhere in the row. Called by the whole block.
  template <class Element, class Cluster>
  SPECULA_HD void find(Row<Element> row, const TileTable<Cluster>& table) {
    if (k_ == 0) return;
    // Each of the k best tiles, by their largest logits, has a token that comes before all of any tile that
    // comes after it: so the i-th (from 0) has no more than k - i of the best tokens, and others have none.
    const int tiles = select_.best(
        table.tiles(), [&](int t) { return rank_value(table[t].a); }, k_, best_);
    const std::uint64_t bound = tiles == k_ ? best_[k_ - 1].value : 1;
    select_.clear();
    for (int i = block_.warp_rank(); i < tiles; i += block_.warp_count())
      gather(row, best_[i].index, k_ - i, bound);
    found_ = select_.first(k_, best_);
  }

  /// How many there are.
  SPECULA_HD int found() const { return found_; }
  /// Number i of them, the best first.
  SPECULA_HD Token token(int i) const { return best_[i].index; }
  SPECULA_HD float logit(int i) const { return of_key(static_cast<std::uint32_t>(best_[i].value)); }

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
    const auto warp = block_.warp();
    const int lane = warp.rank();
    float x[kPerLane];
    unpack(load_tile<Order::columns>(lane, row, tile), x);
    for (int n = 0; n < most; ++n) {
      std::uint64_t top = 0;  // value, then the lower place
      SPECULA_UNROLL
      for (int i = 0; i < kPerLane; ++i) {
        const auto place = static_cast<std::uint64_t>(place_of<Order::columns, Element>(lane, i));
        top = larger(top, rank_value(x[i]) << 16 | (0xFFFF - place));
      }
      top = reduce(warp, top, Max{});
      if (top >> 16 < bound) break;
      const int place = 0xFFFF - static_cast<int>(top & 0xFFFF);
      SPECULA_UNROLL
      for (int i = 0; i < kPerLane; ++i)
        if (place_of<Order::columns, Element>(lane, i) == place) x[i] = -infinity();
      if (lane == 0) select_.add({top >> 16, tile * kTile + place});
    }
  }

  Block block_;
  Select<Block> select_;
  Ranked* best_;  // (k) tiles, then tokens
  int k_, found_ = 0;
};

/// A token of the best, with its softmax probability at temperature 1, which is never above 1 whatever the
/// rounding: along a path they multiply to what never rises.
struct TopToken {
  Token token;
  double prob;
};

/// A row read once by a cluster, and the best of its tokens with their probabilities, for its first block.
template <class Cluster>
class RowTopK {
 public:
  using Block = decltype(std::declval<Cluster>().block());

  /// 16-byte aligned shared memory of each block; see TopK.
  SPECULA_HD static std::size_t shared_bytes(int vocab, int k, int more) {
    return TopK<Block>::shared_bytes(vocab, k, more) + RowScan<Cluster>::shared_bytes(scan_size(vocab), 16);
  }
  /// In blocks of up to 16 warps.
  SPECULA_HD RowTopK(Cluster cluster, int vocab, int k, int more, unsigned char* shared)
      : top_(cluster.block(), vocab, k, more, shared),
        scan_(cluster, scan_size(vocab), shared + TopK<Block>::shared_bytes(vocab, k, more)) {}

  /// Finds them, once; other blocks than the first may leave then. Another status than `ok`, and none found,
  /// if the row is no law.
  template <class Element>
  SPECULA_HD Status find(Row<Element> row) {
    const RowStats law = scan_.law(row, SamplingParams{});
    law_ = law;
    if (law.status == Status::ok && scan_.cluster().rank() == 0) top_.find(row, scan_.table());
    return law.status;
  }

  /// Instead of find().
  SPECULA_HD void leave() { scan_.leave(); }

  // ---- of the first block

  SPECULA_HD int found() const { return top_.found(); }
  SPECULA_HD TopToken operator[](int i) const {
    return {top_.token(i), smaller(1.0, prob(top_.logit(i), law_))};
  }
  SPECULA_HD TopK<Block>& top() { return top_; }

 private:
  SPECULA_HD static ScanSize scan_size(int vocab) { return {vocab, 1, 4096}; }

  TopK<Block> top_;
  RowScan<Cluster> scan_;
  RowStats law_{};
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
