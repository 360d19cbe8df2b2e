// SPDX-License-Identifier: MIT
// Tree attention block by mma.sync: a tile of rows over the keys of one split. Every warp copies, multiplies
// and merges.
#pragma once

#include <type_traits>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/attention_layout.cuh"
#include "specula/cuda/detail/attention/attention_rows.cuh"
#include "specula/cuda/detail/attention/kv_ring.cuh"
#include "specula/cuda/detail/attention/tree_attention_split.cuh"
#include "specula/cuda/detail/primitives/group.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A compiled variant: 16 * kRowWarps rows per block, each tile of keys split over kKeyWarps. Elements of the
/// cache have kStoredBytes.
template <int kHeadSize, int kRowWarps_, int kKeyWarps_, int kStages_, int kStoredBytes = 2>
struct AttentionShape {
  static constexpr bool kHasRoles = false;
  static constexpr int kHead = kHeadSize, kRowWarps = kRowWarps_, kKeyWarps = kKeyWarps_, kStages = kStages_;
  static constexpr int kWarps = kRowWarps * kKeyWarps, kThreads = 32 * kWarps, kRows = 16 * kRowWarps;
  static constexpr int kKeys = kTileKeys / kKeyWarps;  // of a tile, for a warp
  static constexpr int kRowFloats = kHead + 8;         // of a part in shared memory: no bank conflicts
  static constexpr int kPartFloats = kRows * kRowFloats;
  static constexpr int kSavedFloats = kHead + 4;  // of a row of a part in the workspace
  static constexpr int kRingBytes = kStages * kTileKeys * kHead * 2 * kStoredBytes;
  static constexpr int kMergeBytes = (kKeyWarps * (kPartFloats + 2 * kRows) + 2 * kRows) * 4;
  static constexpr int kTileBytes = kRingBytes > kMergeBytes ? kRingBytes : kMergeBytes;
  /// Up to 32 rows two blocks share a multiprocessor, so that one computes while the other waits. (Not on
  /// sm_86, 89 and 120, whose shared memory holds one.) To fit 128 registers per thread, queries of wide
  /// heads are then in shared memory, after the tiles.
  static constexpr int kBlocks = kRows <= 32 ? 2 : 1;
  static constexpr bool kSharedQueries = kHead == 128 && kBlocks * kThreads > 256;
  static constexpr int kSharedBytes = kTileBytes + (kSharedQueries ? kRows * kHead * 2 : 0);
};

/// A block's work. Cost: one read of its keys' K and V.
template <class Shape, class Cluster, class Element, class Stored = Element>
class TreeAttentionBlock : TreeAttentionSplit<Shape, Cluster, Element, Stored> {
  using Base = TreeAttentionSplit<Shape, Cluster, Element, Stored>;
  using Queries =
      std::conditional_t<Shape::kSharedQueries, SharedQueries<Shape::kHead>, HeldQueries<Shape::kHead>>;
  using Rows = AttentionRows<Element, Shape::kHead, Shape::kKeys, Stored, Queries>;
  using Ring = KvRing<Stored, Shape::kHead, Shape::kWarps, Shape::kStages>;
  using Base::cluster_, Base::keys_, Base::l_, Base::rows_, Base::shared_;

 public:
  using Base::Base;

  template <class Copies>
  SPECULA_HD void run(Copies& copies) {
    typename Base::Work work;
    this->report();
    if (!this->find_work(&work)) return;
    if (work.mine) {
      attend(copies, work.tile, work.last);
      this->merge_warps(work.splits == 1);
    }
    if (work.splits == 1) return;
    cluster_.sync();
    this->merge_blocks(work.splits);
  }

 private:
  template <class Copies>
  SPECULA_HD void attend(Copies& copies, int tile, int last) {
    const auto block = cluster_.block();
    const auto warp = block.warp();
    const int row_warp = block.warp_rank() / Shape::kKeyWarps,
              key_warp = block.warp_rank() % Shape::kKeyWarps;
    constexpr int kAhead = Shape::kStages - 1;
    static_assert(Shape::kStages * Ring::kStageBytes == Shape::kRingBytes, "a shape for what is stored");
    Ring ring(l_.args.kv, this->span_, l_.page_size, this->head_, keys_, block.warp_rank(), warp.rank(),
              shared_);
    // Looked up ahead of the copies: those do not wait for the page table.
    typename Ring::Located located[kAhead];
    SPECULA_UNROLL
    for (int i = 0; i < kAhead; ++i) located[i] = ring.locate(tile + i);
    SPECULA_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (tile + i < last) ring.copy(warp, copies, located[i], tile + i, i);
      copies.commit();
    }
    typename Ring::Located next = ring.locate(tile + kAhead);
    const Queries queries = load_queries(warp, row_warp, key_warp);
    Rows rows;
    const ScoreMap score = this->score();
    int stage = 0;
    const auto step = [&](auto masked) {
      copies.template wait<kAhead - 1>();
      // This tile is visible to all its readers, and no warp uses the stage that is filled next.
      if (Shape::kRowWarps == 1)
        warp.sync();  // a warp reads what it copied
      else
        block.sync();
      if (tile + kAhead < last) {
        ring.copy(warp, copies, next, tile + kAhead, stage == 0 ? kAhead : stage - 1);
        next = ring.locate(tile + kAhead + 1);
      }
      copies.commit();
      const int key = tile * kTileKeys + key_warp * Shape::kKeys;
      if (16 * row_warp < rows_ && (!masked.value || (key < keys_.end && key + Shape::kKeys > keys_.load)))
        rows.template add<masked.value>(
            warp, queries, ring.k(stage), ring.v(stage), key_warp * Shape::kKeys, score, [&](int half) {
              return this->view(16 * row_warp + c_cell(warp.rank(), 2 * half).row).sees(key, keys_);
            });
      stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
    };
    // Most tiles are visible to all rows: they have a loop of their own, without a mask.
    const PlainTiles plain = plain_tiles(keys_);
    while (tile < last)
      if (tile < plain.begin || tile >= plain.end) {
        step(std::true_type{});
        ++tile;
      } else {
        for (; tile < smaller(plain.end, last); ++tile) step(std::false_type{});
      }
    copies.template wait<0>();
    rows.finish(warp);
    block.sync();  // the ring is no longer used: its memory now holds the parts
    this->store_rows(warp, rows, row_warp, key_warp);
    block.sync();
  }

  /// Of this warp's rows; warps that share rows each load some of them.
  template <class Warp>
  SPECULA_HD Queries load_queries(Warp warp, int row_warp, int key_warp) {
    const auto query = [&](int row) { return this->query(16 * row_warp + row); };
    Queries out;
    if constexpr (Shape::kSharedQueries) {
      out = Queries(warp.rank(), shared_ + Shape::kTileBytes + row_warp * Queries::kBytes);
      out.template load<StoredKv<Element, Stored>, Shape::kKeyWarps>(warp.rank(), query, key_warp);
      cluster_.block().sync();
    } else {
      out.template load<StoredKv<Element, Stored>>(warp.rank(), query);
    }
    return out;
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
