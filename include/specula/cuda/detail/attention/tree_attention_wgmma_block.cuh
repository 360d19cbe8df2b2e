// SPDX-License-Identifier: MIT
// Warp-specialised tree attention block by wgmma: a tile of rows over the keys of one split. One warpgroup
// copies tiles of keys into a ring, the others multiply.
#pragma once

#include <type_traits>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/panel_ring.cuh"
#include "specula/cuda/detail/attention/tree_attention_split.cuh"
#include "specula/cuda/detail/attention/wgmma_rows.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/wgmma_layout.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A compiled variant: kGroups warpgroups of 64 rows each, and one that copies. One block per multiprocessor.
template <int kHeadSize, int kGroups_, int kStages_>
struct WgmmaShape {
  static_assert(kStages_ >= 3,
                "keys of a tile and values of the one before are read while another one lands");
  static constexpr bool kHasRoles = true;
  static constexpr int kHead = kHeadSize, kGroups = kGroups_, kStages = kStages_;
  static constexpr int kRows = 64 * kGroups, kRowWarps = 4 * kGroups, kKeyWarps = 1, kKeys = kTileKeys;
  static constexpr int kConsumers = 128 * kGroups, kProducers = 128, kThreads = kConsumers + kProducers;
  static constexpr int kWarps = kProducers / 32;  // that copy
  // Of a thread, once it knows its role: together no more than the block is launched with.
  static constexpr int kConsumerRegisters = 216, kProducerRegisters = 72;
  // As AttentionShape's.
  static constexpr int kRowFloats = kHead + 8, kPartFloats = kRows * kRowFloats, kSavedFloats = kHead + 4;
  static constexpr int kRingBytes = kStages * kTileKeys * kHead * 4;
  static constexpr int kMergeBytes = (kPartFloats + 4 * kRows) * 4;
  static constexpr int kTileBytes = kRingBytes > kMergeBytes ? kRingBytes : kMergeBytes;
  static constexpr int kBarrierBytes = 2 * kStages * 8;
  static constexpr int kSharedBytes = kTileBytes + kBarrierBytes + kAtomBytes;  // to align what is given
};

/// The first kThreads threads of a cluster's blocks, as a Cluster: its barrier of the block includes only
/// those; its barrier of the cluster includes the other threads as well.
template <class Cluster, class Hopper, int kThreads>
class FirstThreads {
 public:
  SPECULA_HD FirstThreads(Cluster cluster, Hopper* hopper) : cluster_(cluster), hopper_(hopper) {}

  class Block {
   public:
    SPECULA_HD Block(Cluster cluster, Hopper* hopper) : cluster_(cluster), hopper_(hopper) {}
    SPECULA_HD int rank() const { return cluster_.block().rank(); }
    SPECULA_HD static constexpr int size() { return kThreads; }
    SPECULA_HD void sync() const { hopper_->template sync_first<kThreads>(); }
    SPECULA_HD auto warp() const { return cluster_.block().warp(); }
    SPECULA_HD int warp_rank() const { return rank() / 32; }
    SPECULA_HD static constexpr int warp_count() { return kThreads / 32; }

   private:
    Cluster cluster_;
    Hopper* hopper_;
  };

  SPECULA_HD int rank() const { return cluster_.rank(); }
  SPECULA_HD int size() const { return cluster_.size(); }
  SPECULA_HD void sync() const { cluster_.sync(); }
  SPECULA_HD Block block() const { return Block(cluster_, hopper_); }
  template <class T>
  SPECULA_HD T* map(T* shared, int rank) const {
    return cluster_.map(shared, rank);
  }

 private:
  Cluster cluster_;
  Hopper* hopper_;
};

/// Each stage of the ring has two barriers, after the tiles in shared memory: the producers' copies arrive at
/// full(), every warp that has finished with a stage at empty().
template <class Shape>
struct StageBarriers {
  static_assert(Shape::kGroups <= 2, "arrivals of groups without rows are whole");
  SPECULA_HD static std::uint64_t* full(unsigned char* shared, int stage) {
    return reinterpret_cast<std::uint64_t*>(shared + Shape::kTileBytes) + stage;
  }
  SPECULA_HD static std::uint64_t* empty(unsigned char* shared, int stage) {
    return full(shared, Shape::kStages + stage);
  }
  /// By one thread; a barrier of the block follows.
  template <class Hopper>
  SPECULA_HD static void init(Hopper& hopper, unsigned char* shared) {
    for (int i = 0; i < Shape::kStages; ++i) {
      hopper.init(full(shared, i), Shape::kProducers);
      hopper.init(empty(shared, i), 4 * Shape::kGroups);
    }
  }
};

/// A block's work.
template <class Shape, class Cluster, class Hopper, class Element, class Stored = Element>
class WgmmaAttentionBlock
    : TreeAttentionSplit<Shape, FirstThreads<Cluster, Hopper, Shape::kConsumers>, Element, Stored> {
  using Base = TreeAttentionSplit<Shape, FirstThreads<Cluster, Hopper, Shape::kConsumers>, Element, Stored>;
  using Rows = WgmmaRows<Element, Shape::kHead, Stored>;
  using Ring = PanelRing<Element, Stored, Shape::kHead, Shape::kWarps, Shape::kStages>;
  using Place = RingPlace<Shape::kStages>;
  using Work = typename Base::Work;

 public:
  /// `index` of the cluster in the grid; `shared`: kTileBytes + kBarrierBytes, 1,024-byte aligned, at the
  /// same place in every block.
  SPECULA_HD WgmmaAttentionBlock(Cluster cluster, Hopper* hopper,
                                 const TreeAttentionLaunch<Element, Stored>& launch, int index,
                                 unsigned char* shared)
      : Base(FirstThreads<Cluster, Hopper, Shape::kConsumers>(cluster, hopper), launch, index, shared),
        everybody_(cluster),
        hopper_(*hopper) {}

  /// The producers' loop.
  SPECULA_HD void copy_tiles() {
    Work work;
    if (!this->find_work(&work)) return;
    const auto block = everybody_.block();
    if (work.mine) produce(block.warp(), block.warp_rank() - Shape::kRowWarps, work.tile, work.last);
    if (work.splits == 1) return;
    // As often as the consumers.
    everybody_.sync();
    everybody_.sync();
  }

  /// The consumers' loop.
  SPECULA_HD void attend_rows() {
    this->report();
    Work work;
    if (!this->find_work(&work)) return;
    const auto block = everybody_.block();
    if (work.mine) {
      attend(block.warp(), block.warp_rank(), work.tile, work.last, work.splits == 1);
    }
    if (work.splits == 1) return;
    everybody_.sync();
    this->merge_blocks(work.splits);  // with one barrier of the cluster
  }

 private:
  using Barriers = StageBarriers<Shape>;
  SPECULA_HD std::uint64_t* full(int stage) const { return Barriers::full(this->shared_, stage); }
  SPECULA_HD std::uint64_t* empty(int stage) const { return Barriers::empty(this->shared_, stage); }
  /// Arrives at empty() as often as a warp that multiplies, for warps of groups without rows.
  SPECULA_HD int arrivals() const { return Shape::kGroups / ceil_div(this->rows_, 64); }

  template <class Warp>
  SPECULA_HD Ring ring(Warp warp, int warp_rank) const {
    return Ring(this->l_.args.kv, this->span_, this->l_.page_size, this->head_, this->keys_, warp_rank,
                warp.rank(), this->shared_);
  }

  // ---- the producers

  template <class Warp>
  SPECULA_HD void produce(Warp warp, int warp_rank, int tile, int last) {
    if (tile >= last) return;
    const Ring ring = this->ring(warp, warp_rank);
    auto located = ring.locate(tile);
    const auto copy = [&](int of, const Place& to) {
      hopper_.wait_for(empty(to.stage), to.parity ^ 1);
      ring.copy(warp, hopper_, located, of, to.stage);
      located = ring.locate(of + 1);  // ahead of its copies: those do not wait for the page table
    };
    Place at;
    if constexpr (sizeof(Stored) == sizeof(Element)) {
      for (;; at.advance()) {
        copy(tile, at);
        hopper_.arrive_after_copies(full(at.stage));
        if (++tile == last) break;
      }
      hopper_.wait_for(full(at.stage), at.parity);  // no thread leaves before its copies have landed
    } else {
      // Bytes of this many tiles are in flight. Consumers that wait for a tile still hold the two before it:
      // one more stage, and the copies would wait for them.
      constexpr int kAhead = Shape::kStages - 3;
      static_assert(kAhead > 0, "a stage for bytes");
      Place to;
      for (int of = tile - kAhead; of < last; ++of) {
        if (of + kAhead < last) {
          copy(of + kAhead, to);
          to.advance();
        }
        hopper_.commit();
        if (of < tile) continue;
        hopper_.template wait<kAhead>();
        ring.widen(hopper_, at.stage);
        hopper_.fence_memory();  // products read through another proxy
        hopper_.arrive(full(at.stage));
        at.advance();
      }
    }
  }

  // ---- the consumers

  template <class Warp>
  SPECULA_HD void attend(Warp warp, int warp_rank, int tile, int last, bool alone) {
    Rows rows(warp.rank(), this->score(), [&](int row) { return this->query(16 * warp_rank + row); });
    if (warp_rank / 4 * 64 < this->rows_) consume(warp, warp_rank, rows, tile, last);
    rows.finish(warp);
    if (alone) {
      this->write_rows(warp, rows, warp_rank);
      return;
    }
    this->cluster_.block().sync();               // the ring is no longer used: its memory now holds the parts
    this->store_rows(warp, rows, warp_rank, 0);  // a barrier of the cluster follows
  }

  /// The values of a tile are multiplied while the softmax of the next one is computed.
  template <class Warp>
  SPECULA_HD void consume(Warp warp, int warp_rank, Rows& rows, int tile, int last) {
    if (tile >= last) return;
    const Ring ring = this->ring(warp, warp_rank);
    const int arrivals = this->arrivals();
    const PlainTiles plain = plain_tiles(this->keys_);
    const auto is_plain = [&] { return tile >= plain.begin && tile < plain.end; };
    const auto weigh = [&](bool masked) {
      rows.weigh(warp, masked, [&](int half) {
        return this->view(16 * warp_rank + c_cell(warp.rank(), 2 * half).row)
            .sees(tile * kTileKeys, this->keys_);
      });
    };
    Place at;
    hopper_.wait_for(full(0), 0);
    multiply_keys(ring, rows, 0);
    hopper_.template wait_products<0>();
    rows.settle_scores(hopper_);
    weigh(!is_plain());
    rows.take_weights();
    if (tile + 1 < last) hopper_.wait_for(full(1), 0);
    const auto step = [&](auto masked) {
      const int before = at.stage;
      at.advance();
      multiply_keys(ring, rows, at.stage);
      rows.multiply_values(hopper_, value_descriptor<kTileKeys>(hopper_.shared_address(ring.v(before))));
      hopper_.commit_products();
      hopper_.template wait_products<1>();
      rows.settle_scores(hopper_);
      weigh(masked.value);
      rows.settle_scores(hopper_);  // keeps weigh() here: compilers would move it after the wait
      Place next = at;
      next.advance();
      if (tile + 1 < last) hopper_.wait_for(full(next.stage), next.parity);
      hopper_.template wait_products<0>();
      rows.settle_outputs(hopper_);
      // The wait ends the products' reads: later writes to that stage need no fence.
      if (warp.rank() < arrivals) hopper_.arrive(empty(before));
      rows.take_weights();
    };
    // Most tiles are visible to all rows: they have a loop of their own, without a mask.
    ++tile;
    while (tile < last)
      if (is_plain()) {
        for (; tile < smaller(plain.end, last); ++tile) step(std::false_type{});
      } else {
        step(std::true_type{});
        ++tile;
      }
    hopper_.fence_products();
    rows.multiply_values(hopper_, value_descriptor<kTileKeys>(hopper_.shared_address(ring.v(at.stage))));
    hopper_.commit_products();
    hopper_.template wait_products<0>();
    rows.settle_outputs(hopper_);
  }
  /// After the wait for the stage.
  SPECULA_HD void multiply_keys(const Ring& ring, Rows& rows, int stage) {
    // Copies write as threads do, products read as the tensor core does. The wait made the copies of others
    // visible to this thread; the fence makes them visible to its products.
    hopper_.fence_memory();
    hopper_.fence_products();
    rows.multiply_keys(hopper_, key_descriptor(hopper_.shared_address(ring.k(stage))));
    hopper_.commit_products();
  }

  Cluster everybody_;
  Hopper& hopper_;
};

/// The kernel's body; the arguments are WgmmaAttentionBlock's. Nothing is computed before the roles part:
/// values that are live across that point must fit in a producer's registers.
template <class Shape, class Element, class Stored, class Cluster, class Hopper>
SPECULA_HD void attend_with_wgmma(Cluster cluster, Hopper& hopper,
                                  const TreeAttentionLaunch<Element, Stored>& launch, int index,
                                  unsigned char* shared) {
  using Block = WgmmaAttentionBlock<Shape, Cluster, Hopper, Element, Stored>;
  if (cluster.block().rank() == 0) StageBarriers<Shape>::init(hopper, shared);
  cluster.block().sync();  // all threads at one place: the roles have barriers of their own
  if (cluster.block().rank() >= Shape::kConsumers) {
    hopper.template lower_registers<Shape::kProducerRegisters>();
    Block(cluster, &hopper, launch, index, shared).copy_tiles();
  } else {
    hopper.template raise_registers<Shape::kConsumerRegisters>();
    Block(cluster, &hopper, launch, index, shared).attend_rows();
  }
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
