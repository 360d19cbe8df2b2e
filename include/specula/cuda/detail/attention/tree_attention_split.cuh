// SPDX-License-Identifier: MIT
// Split-KV tree attention, the part shared by all kernels: a block's split of the keys, row masks, and
// merging of partial results across warps, blocks and clusters.
//
// Work: find_work() finds a block's tiles of keys; merge_warps() and merge_blocks() merge partial results.
// Traffic: blocks of a cluster read each other's shared memory; several clusters use the workspace, D + 4
// floats per row.
// Forms: one split in use: a block writes the output alone; one cluster: no workspace; several: the last one
// merges. choose_cut() chooses splits and cluster; batch_invariant fixes a split at 2,048 keys.
// Reference: tests/cuda/detail/attention/attention_layout.cpp (splits, merging);
// bench/cuda/attention_check.cu.
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program attention).
#pragma once

#include "specula/cuda/args/attention.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/paged_kv.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/attention/attention_layout.cuh"
#include "specula/cuda/detail/primitives/block/last_block.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"
#include "specula/cuda/detail/primitives/thread/stored_kv.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"

namespace specula {
namespace cuda {

namespace detail {

/// The plan's part of the kernel's arguments.
template <class Element, class Stored = Element>
struct TreeAttentionLaunch {
  TreeAttentionArgs<Element, Stored> args;
  ScoreMap score;
  Divisor page_size, row_tiles, kv_heads;
  Divisor per_head;                    // query heads of a KV head
  Divisor groups;                      // clusters of a unit, a tile of rows of a KV head
  int max_nodes, query_heads, splits;  // splits: a multiple of the cluster's size
  int fixed_tiles, least_tiles;        // as split_tiles()
  std::uint32_t* counters;             // (units * cluster) 0 between launches
  float* parts;                        // (units, splits / cluster, rows of a tile, D + 4) 16-byte aligned
};

/// A block's share of a launch: one split of the keys, for one tile of the packed rows of a KV head of a
/// sequence. Blocks of a cluster have neighbouring splits of the same tile. `Shape` is the arrangement of
/// rows and warps (AttentionShape); the derived class multiplies.
template <class Shape, class Cluster, class Element, class Stored = Element>
class TreeAttentionSplit {
  static constexpr int kHead = Shape::kHead, kFours = kHead / 4;

 public:
  /// `index` of the cluster in the grid; `shared`: Shape::kSharedBytes, 128-byte aligned, at the same place
  /// in every block.
  SPECULA_HD TreeAttentionSplit(Cluster cluster, const TreeAttentionLaunch<Element, Stored>& launch,
                                int index, unsigned char* shared)
      : cluster_(cluster), l_(launch), shared_(shared) {
    // Tiles of the same keys are adjacent in the grid, so they hit the cache.
    row_tile_ = index;
    group_ = l_.row_tiles.divide(&row_tile_);
    head_ = l_.groups.divide(&group_);
    unit_ = head_ * static_cast<int>(l_.row_tiles.by) + row_tile_;
    sequence_ = l_.kv_heads.divide(&head_);
    span_ = page_span(l_.args.kv, sequence_);
    length_ = larger(0, l_.args.kv.length[sequence_]);
    begin_ = l_.args.begin[sequence_];
    nodes_ =
        is_live(sequence_, l_.args.sequence_count) ? larger(0, l_.args.begin[sequence_ + 1] - begin_) : 0;
    const std::int64_t left =
        static_cast<std::int64_t>(nodes_) * per_head() - static_cast<std::int64_t>(row_tile_) * Shape::kRows;
    rows_ = static_cast<int>(smaller<std::int64_t>(larger<std::int64_t>(left, 0), Shape::kRows));
  }

 protected:
  /// Tiles [tile, last) are this block's, if one of the splits is its; `splits` of the unit have any.
  struct Work {
    bool mine;
    int tile, last, splits;
  };
  /// False if no block of the cluster has any.
  SPECULA_HD bool find_work(Work* work) {
    if (rows_ <= 0) return false;
    find_keys();
    const int first = keys_.load / kTileKeys, tiles = ceil_div(keys_.end, kTileKeys) - first;
    const Splits splits = split_tiles(tiles, l_.splits, l_.fixed_tiles, l_.least_tiles);
    const int mine = group_ * cluster_.size() + cluster_.rank();
    *work = {mine < splits.used, first + splits.begin(mine), first + splits.end(mine, tiles), splits.used};
    return splits.used > group_ * cluster_.size();
  }

  /// The sequence's status, by one thread of its first block.
  SPECULA_HD void report() const {
    if (!l_.args.status || !is_live(sequence_, l_.args.sequence_count) || row_tile_ != 0 || head_ != 0 ||
        group_ != 0 || cluster_.rank() != 0 || cluster_.block().rank() != 0)
      return;
    const std::int64_t tokens = l_.args.kv.length[sequence_];
    const std::int64_t nodes = static_cast<std::int64_t>(l_.args.begin[sequence_ + 1]) - begin_;
    const std::int64_t tail = earlier() + nodes;
    const std::int64_t slots = tokens + (l_.args.words > 0 ? tail : 0);
    const bool good = tokens >= 0 && nodes >= 0 && nodes <= l_.max_nodes && earlier() >= 0 &&
                      (l_.args.words == 0 || tail <= 64 * static_cast<std::int64_t>(l_.args.words)) &&
                      slots <= static_cast<std::int64_t>(span_.count) * l_.page_size.by;
    l_.args.status[sequence_] = good ? Status::ok : Status::bad_tree;
  }

  // ---- masks

  SPECULA_HD std::int32_t position_base() const { return l_.args.position ? 0 : keys_.prefix; }
  SPECULA_HD const std::int32_t* positions() const {
    const std::int32_t* all = l_.args.position ? l_.args.position : l_.args.depth;
    return all ? all + begin_ : nullptr;
  }

  SPECULA_HD void find_keys() {
    constexpr std::int64_t kMaxTokens = 0x7FFF0000;  // tiles' ends fit in an int, too
    const std::int64_t room =
        smaller<std::int64_t>(static_cast<std::int64_t>(span_.count) * l_.page_size.by, kMaxTokens);
    const std::int64_t tail = larger<std::int64_t>(0, earlier()) + nodes_;
    const std::int64_t end = static_cast<std::int64_t>(length_) + (l_.args.words > 0 ? tail : 0);
    keys_.prefix = static_cast<int>(smaller<std::int64_t>(length_, room));
    std::int32_t low = 0, high = 0;
    if (l_.args.window > 0) {
      const auto warp = cluster_.block().warp();
      low = 0x7FFFFFFF;
      high = -low;
      for (int node = warp.rank(); node < nodes_; node += warp.size()) {
        const std::int32_t at = position_base() + positions()[node];
        low = smaller(low, at);
        high = larger(high, at);
      }
      low = reduce(warp, low, Min{});
      high = reduce(warp, high, Max{});
    }
    keys_ = key_range(keys_.prefix, static_cast<int>(smaller<std::int64_t>(end, room)), l_.args.window, low,
                      high);
  }

  /// Nodes of the tree that ran in calls before.
  SPECULA_HD std::int64_t earlier() const { return l_.args.earlier ? l_.args.earlier[sequence_] : 0; }
  SPECULA_HD int per_head() const { return static_cast<int>(l_.per_head.by); }
  SPECULA_HD PackedRow packed(int row) const {
    return packed_row(row_tile_ * Shape::kRows + row, l_.per_head);
  }

  SPECULA_HD const Element* query(int row) const {
    if (row >= rows_) return nullptr;
    const PackedRow at = packed(row);
    return l_.args.q + static_cast<std::int64_t>(begin_ + at.node) * l_.args.q_stride +
           static_cast<std::int64_t>(head_ * per_head() + at.head) * kHead;
  }

  SPECULA_HD RowView view(int row) const {
    const int node = row < rows_ ? packed(row).node : 0;
    const std::int64_t query = static_cast<std::int64_t>(begin_) + node;
    const bool windowed = l_.args.window > 0;
    return {l_.args.words > 0 ? l_.args.mask + query * l_.args.words : nullptr,
            positions(),
            l_.args.words,
            windowed ? position_base() + positions()[node] : 0,
            position_base(),
            l_.args.window};
  }

  /// Of this KV head's keys.
  SPECULA_HD ScoreMap score() const {
    ScoreMap out = l_.score;
    if (l_.args.k_scale) out.factor = product(out.factor, l_.args.k_scale[head_]);
    return out;
  }

  // ---- shared memory, after the ring is no longer used: the warps' parts, their maxima and sums, and the
  // same of the block

  SPECULA_HD float* part(int key_warp, int row) const {
    return reinterpret_cast<float*>(shared_) + key_warp * Shape::kPartFloats + row * Shape::kRowFloats;
  }
  SPECULA_HD float* stats(int key_warp, int row) const {
    return reinterpret_cast<float*>(shared_) + Shape::kKeyWarps * Shape::kPartFloats +
           (key_warp * Shape::kRows + row) * 2;
  }

  /// Of the block: where one warp has all keys of a row, its own are.
  static constexpr bool kManyWarps = Shape::kKeyWarps > 1;
  SPECULA_HD float* block_stats(int row) const { return stats(kManyWarps ? Shape::kKeyWarps : 0, row); }

  template <class Warp, class AnyRows>
  SPECULA_HD void store_rows(Warp warp, const AnyRows& rows, int row_warp, int key_warp) const {
    SPECULA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * row_warp + c_cell(warp.rank(), 2 * half).row;
      const int column = c_cell(warp.rank(), 0).column;
      SPECULA_UNROLL
      for (int n = 0; n < kHead / 8; ++n) SPECULA_UNROLL
      for (int i = 0; i < 2; ++i)
        part(key_warp, row)[StoredKv<Element, Stored>::column(8 * n + column + i)] =
            rows.output(n, 2 * half + i);
      if (column == 0) {
        stats(key_warp, row)[0] = rows.maximum(half);
        stats(key_warp, row)[1] = rows.sum(half);
      }
    }
  }

  // An item is four columns of a row. One block has all items of a row, and so its maximum and sum.
  static_assert(Shape::kThreads % kFours == 0, "rows are not torn");
  SPECULA_HD int items() const { return rows_ * kFours; }

  SPECULA_HD static Part get_part(const float* o, const float* stats) {
    const Four<float> four = *reinterpret_cast<const Four<float>*>(o);
    return {stats[0], stats[1], {four.v[0], four.v[1], four.v[2], four.v[3]}};
  }
  SPECULA_HD static void put_part(const Part& from, float* o, float* stats) {
    *reinterpret_cast<Four<float>*>(o) = {{from.o[0], from.o[1], from.o[2], from.o[3]}};
    if (stats) {
      stats[0] = from.maximum;
      stats[1] = from.sum;
    }
  }

  /// Writes the block's part in place of the first key warp's, its maxima and sums after all others; or the
  /// output, if it is the only part.
  SPECULA_HD void merge_warps(bool alone) const {
    if (!kManyWarps && !alone) return;
    const auto block = cluster_.block();
    for (int i = block.rank(); i < items(); i += block.size()) {
      const int row = i / kFours, column = i % kFours * 4;
      const Part all = merge_parts(
          Shape::kKeyWarps, [&](int w) { return stats(w, row)[0]; },
          [&](int w) { return get_part(part(w, row) + column, stats(w, row)); });
      if (alone)
        write(row, column, all);
      else
        put_part(all, part(0, row) + column, column == 0 ? block_stats(row) : nullptr);
    }
  }

  /// Merges the parts of this cluster's blocks; with several clusters, the last one to arrive merges all.
  /// Every block has its items, so the last ones are one per block of a cluster.
  SPECULA_HD void merge_blocks(int splits) {
    const int live = smaller(cluster_.size(), splits - group_ * cluster_.size());
    const int clusters = ceil_div(splits, cluster_.size());
    const auto block = cluster_.block();
    const int step = block.size() * cluster_.size();
    const int first = cluster_.rank() * block.size() + block.rank();
    const std::int64_t parts = static_cast<std::int64_t>(unit_) * l_.groups.by;
    for (int i = first; i < items(); i += step) {
      const int row = i / kFours, column = i % kFours * 4;
      const Part all = merge_parts(
          live, [&](int b) { return cluster_.map(block_stats(row), b)[0]; },
          [&](int b) {
            return get_part(cluster_.map(part(0, row), b) + column, cluster_.map(block_stats(row), b));
          });
      if (clusters == 1)
        write(row, column, all);
      else
        save(parts + group_, row, column, all);
    }
    cluster_.sync();  // no block leaves, or overwrites its memory, while another one reads it
    if (clusters == 1) return;
    // the blocks of this rank of the unit's other clusters
    if (!is_last_to_arrive(block,
                           l_.counters + static_cast<std::int64_t>(unit_) * cluster_.size() + cluster_.rank(),
                           clusters, reinterpret_cast<std::int32_t*>(shared_)))
      return;
    for (int i = first; i < items(); i += step) {
      const int row = i / kFours, column = i % kFours * 4;
      write(row, column,
            merge_parts(
                clusters, [&](int c) { return saved(parts + c, row)[kHead]; },
                [&](int c) {
                  const float* from = saved(parts + c, row);
                  return get_part(from + column, from + kHead);
                }));
    }
  }

  /// A row of a part in the workspace: its kHead columns, then maximum and sum.
  SPECULA_HD float* saved(std::int64_t part, int row) const {
    return l_.parts + (part * Shape::kRows + row) * Shape::kSavedFloats;
  }

  SPECULA_HD void save(std::int64_t part, int row, int column, const Part& from) const {
    float* to = saved(part, row);
#ifdef __CUDA_ARCH__  // one store of 16 bytes: assigned structs have been seen to become four
    store_past_l1(to + column, bits_of(from.o[0]), bits_of(from.o[1]), bits_of(from.o[2]),
                  bits_of(from.o[3]));
    if (column == 0) store_past_l1(to + kHead, bits_of(from.maximum), bits_of(from.sum));
#else
    put_part(from, to + column, column == 0 ? to + kHead : nullptr);
#endif
  }

  /// Where a row's output goes, and what its sums are multiplied by.
  struct Target {
    Element* out;  // kHead columns
    float inverse;
  };
  /// Writes the log-sum-exp, too, if `lse`.
  SPECULA_HD Target finish_row(int row, float maximum, float sum, bool lse) const {
    const PackedRow at = packed(row);
    const std::int64_t query = static_cast<std::int64_t>(begin_) + at.node;
    const int head = head_ * per_head() + at.head;
    const bool none = sum == 0;  // no key is visible
    float inverse = none ? 0.0f : 1.0f / sum;
    if (!none && l_.args.v_scale) inverse = product(inverse, l_.args.v_scale[head_]);
    if (l_.args.lse && lse)
      l_.args.lse[query * l_.query_heads + head] =
          none ? -infinity() : (maximum + log2f(sum)) * static_cast<float>(1 / kLog2E);
    return {l_.args.out + query * l_.args.out_stride + static_cast<std::int64_t>(head) * kHead, inverse};
  }

  SPECULA_HD void write(int row, int column, const Part& all) const {
    const Target to = finish_row(row, all.maximum, all.sum, column == 0);
    store_four(to.out + column, pack(Element{}, product(all.o[0], to.inverse), product(all.o[1], to.inverse)),
               pack(Element{}, product(all.o[2], to.inverse), product(all.o[3], to.inverse)));
  }

  /// Rows whose only part is in a warp's registers.
  template <class Warp, class AnyRows>
  SPECULA_HD void write_rows(Warp warp, const AnyRows& rows, int row_warp) const {
    const int column = c_cell(warp.rank(), 0).column;
    SPECULA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * row_warp + c_cell(warp.rank(), 2 * half).row;
      if (row >= rows_) continue;
      const Target to = finish_row(row, rows.maximum(half), rows.sum(half), column == 0);
      SPECULA_UNROLL
      for (int n = 0; n < kHead / 8; n += 2) {
        float x[4];
        SPECULA_UNROLL
        for (int i = 0; i < 4; ++i) x[i] = product(rows.output(n + i / 2, 2 * half + i % 2), to.inverse);
        StoredKv<Element, Stored>::store(to.out + 8 * n, column, x);
      }
    }
  }

  Cluster cluster_;
  const TreeAttentionLaunch<Element, Stored>& l_;
  unsigned char* shared_;
  int row_tile_, group_, head_, sequence_, length_, begin_, nodes_, rows_, unit_;
  PageSpan span_{};
  KeyRange keys_{};
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
