// The likeliest tokens of a row that a cluster has just scanned, known to every one of its blocks.
#pragma once

#include <utility>

#include "../detail/host_device.cuh"
#include "../group.cuh"
#include "../types.cuh"
#include "../warp/tile.cuh"
#include "select.cuh"
#include "tile_table.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The k largest logits, ties to the lower token, -infinity never. They are in the k tiles of the largest
/// maxima, there in the k groups of 16 tokens that have the largest, and ties are decided alike everywhere:
/// so a block looks at no more than k tiles, whatever the row, and each block does it for itself. Cost: those
/// tiles, read from the cache.
template <class Cluster>
class Likeliest {
 public:
  using Block = decltype(std::declval<Cluster>().block());

  /// 16-byte aligned shared memory of each block.
  SPECULA_HD static std::size_t shared_bytes(int vocab, int k) {
    return Select<Block>::shared_bytes(most_compared(vocab, k)) + sizeof(Ranked) * at_least(k) +
           2 * sizeof(std::int32_t) * at_least(k);
  }
  /// k in [0, 64], or more if there is room.
  SPECULA_HD Likeliest(Block block, int vocab, int k, unsigned char* shared)
      : block_(block),
        select_(block, shared),
        best_(reinterpret_cast<Ranked*>(shared + Select<Block>::shared_bytes(most_compared(vocab, k)))),
        tiles_(reinterpret_cast<std::int32_t*>(best_ + at_least(k))),
        groups_(tiles_ + at_least(k)),
        k_(k) {}

  /// Finds them; `table` holds the tiles' maxima, and NaN is nowhere in the row. Called by the whole block.
  template <class Element>
  SPECULA_HD void find(Row<Element> row, const TileTable<Cluster>& table) {
    const int tiles = select_.best(
        table.tiles(), [&](int t) { return rank_value(table[t].a); }, k_, best_);
    in_order(tiles, tiles_, [&](int i) { return i; });
    const int groups = select_.best(
        kGroups * tiles,
        [&](int i) {
          const int first = tiles_[i / kGroups] * kTile + i % kGroups * kPerLane;
          float top = -infinity();
          SPECULA_UNROLL
          for (int k = 0; k < kPerLane; k += 4) {
            float x[4];
            load_four(row, first + k, x);
            top = larger(top, larger(larger(x[0], x[1]), larger(x[2], x[3])));
          }
          return rank_value(top);
        },
        k_, best_);
    in_order(groups, groups_, [&](int i) { return tiles_[i / kGroups] * kGroups + i % kGroups; });
    found_ = select_.best(
        kPerLane * groups,
        [&](int i) {
          const Token token = token_of(i);
          return token < row.vocab ? rank_value(row[token]) : 0;
        },
        k_, best_);
  }

  SPECULA_HD int found() const { return found_; }
  /// Number i of them, the best first.
  SPECULA_HD Token token(int i) const { return token_of(best_[i].index); }
  SPECULA_HD float logit(int i) const { return of_key(static_cast<std::uint32_t>(best_[i].value)); }

 private:
  static constexpr int kGroups = kTile / kPerLane;  // of a tile

  SPECULA_HD static std::size_t at_least(int k) { return static_cast<std::size_t>(ceil_div(k, 4) * 4); }
  SPECULA_HD static int most_compared(int vocab, int k) {
    const int tiles = tile_count(vocab), groups = kGroups * smaller(k, tiles);
    return larger(tiles, larger(groups, kPerLane * smaller(k, groups)));
  }
  SPECULA_HD Token token_of(int i) const { return groups_[i / kPerLane] * kPerLane + i % kPerLane; }

  /// value(index) of the `n` selected in the order of their indices: which is that of their tokens.
  template <class Value>
  SPECULA_HD void in_order(int n, std::int32_t* out, Value value) {
    for (int i = block_.rank(); i < n; i += block_.size()) {
      int before = 0;
      for (int j = 0; j < n; ++j) before += best_[j].index < best_[i].index ? 1 : 0;
      out[before] = value(best_[i].index);
    }
    block_.sync();
  }

  Block block_;
  Select<Block> select_;
  Ranked* best_;                   // (k)
  std::int32_t *tiles_, *groups_;  // (k), (k)
  int k_, found_ = 0;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
