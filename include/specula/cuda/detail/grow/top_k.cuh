// SPDX-License-Identifier: MIT
// Top-k tokens of a row after one scan of it by a cluster.
#pragma once

#include <utility>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/block/select.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"
#include "specula/cuda/detail/verify/row_scan.cuh"
#include "specula/cuda/detail/verify/tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The k largest logits of a row that a cluster has just scanned, ties to the lower token, -infinity never.
/// Each block finds the same ones by itself. Cost: one read of at most k tiles, and two selections: among all
/// tiles by their maxima, and among at most k (k + 1) / 2 tokens.
template <class Block>
class TopK {
 public:
  /// 16-byte aligned shared memory to find the `k` best of rows, and to select among `more` afterwards.
  SPECULA_HD static std::size_t shared_bytes(int vocab, int k, int more = 0) {
    return select_bytes(vocab, k, more) + array_bytes<std::uint64_t>(k + k % 2);
  }
  /// k >= 0.
  SPECULA_HD TopK(Block block, int vocab, int k, int more, unsigned char* shared)
      : block_(block),
        select_(block, larger(more, tile_count(vocab)), candidates(k), shared),
        best_(reinterpret_cast<std::uint64_t*>(shared + select_bytes(vocab, k, more))),
        k_(k) {
    end_array(best_, k);
  }

  /// Finds them; `table` holds the tiles' maxima, and NaN is nowhere in the row. Called by the whole block.
  template <class Element, class Table>
  SPECULA_HD void find(Row<Element> row, const Table& table) {
    if (k_ == 0) return;
    // Each of the k best tiles, by their largest logits, has a token that comes before all of any tile that
    // comes after it: so the i-th (from 0) has no more than k - i of the best tokens, and others have none.
    select_.read(table.tiles(), [&](int t) { return ranked(rank_value(table[t].a), t); });
    const int tiles = select_.best(k_, best_);
    const std::uint32_t bound = tiles == k_ ? value_of(best_[k_ - 1]) : 1;
    SPECULA_NO_UNROLL
    for (int i = block_.warp_rank(); i < tiles; i += block_.warp_count())
      gather(row, index_of(best_[i]), k_ - i, bound);
    found_ = select_.first(k_, best_);
  }

  /// How many there are.
  SPECULA_HD int found() const { return found_; }
  /// Number i of them, the best first.
  SPECULA_HD Token token(int i) const { return index_of(best_[i]); }
  SPECULA_HD float logit(int i) const { return of_key(value_of(best_[i])); }

  SPECULA_HD Select<Block>& select() { return select_; }
  /// (k) of shared memory for what is selected; the best tokens are lost.
  SPECULA_HD std::int32_t* selected() { return reinterpret_cast<std::int32_t*>(best_); }

 private:
  SPECULA_HD static int candidates(int k) { return k * (k + 1) / 2; }
  SPECULA_HD static std::size_t select_bytes(int vocab, int k, int more) {
    return Select<Block>::shared_bytes(larger(more, tile_count(vocab)), candidates(k));
  }

  /// Adds the `most` best of a tile, by a warp, if they are no less than `bound`.
  template <class Element>
  SPECULA_HD void gather(Row<Element> row, int tile, int most, std::uint32_t bound) {
    const auto warp = block_.warp();
    const int lane = warp.rank();
    const auto place = [lane](int i) { return place_of<Order::columns, Element>(lane, i); };
    float x[kPerLane];
    unpack(load_tile<Order::columns>(lane, row, tile), x);
    std::uint32_t value[kPerLane];
    SPECULA_UNROLL
    for (int i = 0; i < kPerLane; ++i) value[i] = rank_value(x[i]);
    SPECULA_NO_UNROLL
    for (int n = 0; n < most; ++n) {
      std::uint32_t mine = value[0];
      SPECULA_UNROLL
      for (int i = 1; i < kPerLane; ++i) mine = larger(mine, value[i]);
      const std::uint32_t top = warp.largest(mine);
      if (top < bound) break;
      std::uint32_t first = 0;  // kTile less the lowest place of it
      SPECULA_UNROLL
      for (int i = kPerLane - 1; i >= 0; --i)
        first = value[i] == top ? static_cast<std::uint32_t>(kTile - place(i)) : first;
      const int at = kTile - static_cast<int>(warp.largest(first));
      SPECULA_UNROLL
      for (int i = 0; i < kPerLane; ++i) value[i] = place(i) == at ? 0 : value[i];
      if (lane == 0) select_.add(ranked(top, tile * kTile + at));
    }
  }

  Block block_;
  Select<Block> select_;
  std::uint64_t* best_;  // (k) tiles, then tokens
  int k_, found_ = 0;
};

/// One of the best tokens, with its softmax probability at temperature 1. It is at most 1 whatever the
/// rounding, so the product along a path never rises.
struct TopToken {
  Token token;
  double prob;
};

/// Reads a row once, by a cluster; the best tokens and their probabilities are known to its first block.
template <class Cluster>
class RowTopK {
 public:
  using Block = decltype(std::declval<Cluster>().block());

  /// 16-byte aligned shared memory of each block of `warps` warps; see TopK.
  SPECULA_HD static std::size_t shared_bytes(const ScanSize& size, int warps, int k, int more) {
    return TopK<Block>::shared_bytes(size.vocab, k, more) + RowScan<Cluster>::shared_bytes(size, warps);
  }
  /// `size`: of one row.
  SPECULA_HD RowTopK(Cluster cluster, const ScanSize& size, int k, int more, unsigned char* shared)
      : top_(cluster.block(), size.vocab, k, more, shared),
        scan_(cluster, size, shared + TopK<Block>::shared_bytes(size.vocab, k, more)) {}

  /// Finds them, once; other blocks than the first may leave then. Another status than `ok`, and none found,
  /// if the row is no distribution.
  template <class Element>
  SPECULA_HD Status find(Row<Element> row) {
    const RowStats distribution = scan_.distribution(row, SamplingParams{});
    distribution_ = distribution;
    if (distribution.status == Status::ok && scan_.cluster().rank() == 0) top_.find(row, scan_.table());
    return distribution.status;
  }

  /// Instead of find().
  SPECULA_HD void leave() { scan_.leave(); }

  // ---- of the first block

  SPECULA_HD int found() const { return top_.found(); }
  SPECULA_HD TopToken operator[](int i) const {
    return {top_.token(i), smaller(1.0, prob(top_.logit(i), distribution_))};
  }
  SPECULA_HD TopK<Block>& top() { return top_; }

 private:
  TopK<Block> top_;
  RowScan<Cluster> scan_;
  RowStats distribution_{};
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
