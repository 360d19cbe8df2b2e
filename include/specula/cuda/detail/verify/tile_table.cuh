// SPDX-License-Identifier: MIT
// Table of per-tile statistics in shared memory, filled by passes over rows that are spread over the warps of
// a cluster and known to every block.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"
#include "specula/cuda/detail/primitives/warp/tile.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Sizes of a scan: rows of `vocab` tokens, at most `rows` of them per pass, through `ring_bytes` of shared
/// memory per warp: 8,192 or 4,096.
struct ScanSize {
  int vocab = 0, rows = 1, ring_bytes = 8192;
};
constexpr int kMaxRows = 8;  // in one pass

struct alignas(8) TileEntry {
  float a, b;
};

/// Two floats per tile in every block's shared memory, for some rows, in two sets: a fast block may fill the
/// next pass's set while a slow one still reads the last pass's, so a pass needs one barrier of the cluster.
///
/// Tiles come through each warp's own ring in shared memory: a ring of registers would be waited for as a
/// whole, since there are too few scoreboards to wait for one load. Each lane copies the elements that it
/// reads, so no lane waits for another. `Size` is ScanSize, or a reference to one that outlives the table and
/// takes no registers.
template <class Cluster, class Size = ScanSize>
class TileTable {
 public:
  using Entry = TileEntry;

  /// Minimum size of the rings, together.
  static constexpr std::size_t kScratchBytes = 16640;
  SPECULA_HD static std::size_t scratch_bytes(const ScanSize& size, int warps) {
    return larger(static_cast<std::size_t>(warps * size.ring_bytes), kScratchBytes);
  }
  /// 16-byte aligned shared memory of each block of `warps` warps.
  SPECULA_HD static std::size_t shared_bytes(const ScanSize& size, int warps) {
    return array_bytes<unsigned char>(scratch_bytes(size, warps)) +
           round_up(array_bytes<Entry>(entry_count(size)), std::size_t{16});
  }

  /// At the same place in every block. The other blocks may not have begun: the first pass waits for them, or
  /// leave() where there is none.
  SPECULA_HD TileTable(Cluster cluster, const ScanSize& size, unsigned char* shared)
      : cluster_(cluster),
        size_(size),
        ring_(shared + cluster.block().warp_rank() * size.ring_bytes),
        tables_(behind<Entry>(shared, scratch_bytes(size, cluster.block().warp_count()))) {
    end_array(tables_, entry_count(size));
    cluster_.arrive();
  }
  SPECULA_HD void leave() {
    if (!begun_) cluster_.wait();
    begun_ = true;
  }

  SPECULA_HD int tiles() const { return tile_count(size_.vocab); }
  /// Which of the two sets the last pass filled: for threads that took no part.
  SPECULA_HD int set() const { return set_; }
  SPECULA_HD void follow(int set) { set_ = set; }
  SPECULA_HD Cluster cluster() const { return cluster_; }
  /// Row r's entries of the last pass.
  SPECULA_HD Entry* row(int r) const { return tables_ + (set_ * size_.rows + r) * tiles(); }
  /// Of the last pass's first row.
  SPECULA_HD Entry operator[](int tile) const { return row(0)[tile]; }
  /// The warps' rings, scratch_bytes() of memory for use between passes.
  SPECULA_HD unsigned char* scratch() const {
    return ring_ - cluster_.block().warp_rank() * size_.ring_bytes;
  }

  /// entry(r, tile, raw) for the tiles of rows row_of(0) to row_of(rows - 1) that wanted(r, tile) says; zeros
  /// for the others. Where `has_aside`, the last warp of each block calls aside() instead, once the others
  /// have begun.
  template <class Element, class RowOf, class Wanted, class Make, class Aside>
  SPECULA_HD void read(int rows, RowOf row_of, Wanted wanted, Make entry, bool has_aside, Aside aside) {
    const int stages = size_.ring_bytes / kBytes<Element>;
    const auto block = cluster_.block();
    const bool alone = block.warp_count() == 1;
    const int readers = block.warp_count() - (has_aside && !alone ? 1 : 0);
    set_ = 1 - set_;
    if (has_aside && (alone || block.warp_rank() == readers)) aside();
    if (block.warp_rank() < readers) {
      typename Cluster::Copies copies;
      Place next(*this, readers), at = next;
      for (int i = 0; i < stages; ++i, next.go_on()) fetch<Element>(copies, i, next, rows, row_of, wanted);
      leave();
      for (int i = 0; at.row < rows; i = i + 1 == stages ? 0 : i + 1, at.go_on(), next.go_on()) {
        wait_for_stage(copies, stages);
        Entry out{0, 0};
        if (wanted(at.row, at.tile)) out = entry(at.row, at.tile, fetched<Element>(i * kBytes<Element>));
        put(at.row, at.tile, out);
        fetch<Element>(copies, i, next, rows, row_of, wanted);
      }
      copies.template wait<0>();
    }
    leave();
    cluster_.sync();
  }

  /// The same of two rows at once into row 0's entries: entry(tile, raw of one, raw of two).
  template <class One, class Two, class Make>
  SPECULA_HD void read_two(Row<One> one, Row<Two> two, Make entry) {
    constexpr int kBoth = kBytes<One> + kBytes<Two>;
    constexpr Order kOrder = sizeof(One) == sizeof(Two) ? Order::columns : Order::eights;
    const int stages = larger(size_.ring_bytes / kBoth, 1);
    const auto block = cluster_.block();
    set_ = 1 - set_;
    typename Cluster::Copies copies;
    Place next(*this, block.warp_count()), at = next;
    const auto start = [&](int i) {
      if (next.row == 0) {
        copy_tile<kOrder>(copies, i * kBoth, one, next.tile);
        copy_tile<kOrder>(copies, i * kBoth + kBytes<One>, two, next.tile);
      }
      copies.commit();
      next.go_on();
    };
    for (int i = 0; i < stages; ++i) start(i);
    leave();
    for (int i = 0; at.row == 0; i = i + 1 == stages ? 0 : i + 1, at.go_on()) {
      wait_for_stage(copies, stages);
      put(0, at.tile, entry(at.tile, fetched<One>(i * kBoth), fetched<Two>(i * kBoth + kBytes<One>)));
      start(i);
    }
    copies.template wait<0>();
    cluster_.sync();
  }

  /// The same where nothing is copied: entry(tile), into row 0's entries.
  template <class Make>
  SPECULA_HD void pass(Make entry) {
    set_ = 1 - set_;
    leave();
    for (Place at(*this, cluster_.block().warp_count()); at.row == 0; at.go_on())
      put(0, at.tile, entry(at.tile));
    cluster_.sync();
  }

 private:
  SPECULA_HD static int entry_count(const ScanSize& size) { return 2 * size.rows * tile_count(size.vocab); }
  template <class Element>
  static constexpr int kBytes = kTile* static_cast<int>(sizeof(Element));

  /// A warp's way through the tiles of rows that follow each other.
  struct Place {
    int row, tile;
    int rows_a_step, tiles_a_step, tiles;

    SPECULA_HD Place(const TileTable& table, int readers) : tiles(table.tiles()) {
      const auto block = table.cluster_.block();
      const int first = table.cluster_.rank() * readers + block.warp_rank(),
                step = table.cluster_.size() * readers;
      row = first / tiles, tile = first % tiles;
      rows_a_step = step / tiles, tiles_a_step = step % tiles;
    }
    SPECULA_HD void go_on() {
      row += rows_a_step, tile += tiles_a_step;
      if (tile >= tiles) tile -= tiles, ++row;
    }
  };

  /// Starts a lane's copies of a tile into its ring, at byte offset `at`.
  template <Order order, class Element>
  SPECULA_HD void copy_tile(typename Cluster::Copies& copies, int at, Row<Element> row, int tile) const {
    constexpr int kChunks = kBytes<Element> / 512;
    const int lane = cluster_.block().warp().rank();
    unsigned char* const to = ring_ + at + 16 * lane;
    if (row.vocab - tile * kTile >= kTile && row.aligned(16)) {
      const Element* const from = row.data + static_cast<std::int64_t>(tile) * kTile;
      SPECULA_UNROLL
      for (int c = 0; c < kChunks; ++c)
        copies.copy(to + 512 * c, from + place_of<order, Element>(lane, c * kWide<Element>), true);
    } else if (is_wide(row)) {
      SPECULA_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        const int at_token = tile * kTile + place_of<order, Element>(lane, c * kWide<Element>);
        if (at_token < row.vocab)
          copies.copy(to + 512 * c, row.data + at_token, true);
        else
          *reinterpret_cast<Wide*>(to + 512 * c) = nothing_wide<Element>();
      }
    } else {
      const RawTile<Element> raw = load_tile<order>(lane, row, tile);
      SPECULA_UNROLL
      for (int c = 0; c < kChunks; ++c)
        *reinterpret_cast<Wide*>(to + 512 * c) = {
            {raw.words[4 * c], raw.words[4 * c + 1], raw.words[4 * c + 2], raw.words[4 * c + 3]}};
    }
  }
  template <class Element>
  SPECULA_HD RawTile<Element> fetched(int at) const {
    const unsigned char* const from = ring_ + at + 16 * cluster_.block().warp().rank();
    RawTile<Element> out;
    SPECULA_UNROLL
    for (int c = 0; c < kBytes<Element> / 512; ++c) {
      const Wide chunk = *reinterpret_cast<const Wide*>(from + 512 * c);
      SPECULA_UNROLL
      for (int w = 0; w < 4; ++w) out.words[4 * c + w] = chunk.words[w];
    }
    return out;
  }
  template <class Element, class RowOf, class Wanted>
  SPECULA_HD void fetch(typename Cluster::Copies& copies, int stage, const Place& next, int rows,
                        RowOf row_of, Wanted wanted) const {
    if (next.row < rows && wanted(next.row, next.tile))
      copy_tile<Order::columns>(copies, stage * kBytes<Element>, row_of(next.row), next.tile);
    copies.commit();
  }

  /// Waits for the oldest of `stages` groups of copies; the number that may remain is an immediate operand.
  SPECULA_HD static void wait_for_stage(typename Cluster::Copies& copies, int stages) {
    if (stages >= 8)
      copies.template wait<7>();
    else if (stages >= 4)
      copies.template wait<3>();
    else if (stages >= 2)
      copies.template wait<1>();
    else
      copies.template wait<0>();
  }

  SPECULA_HD void put(int r, int tile, Entry entry) const {
    const int lane = cluster_.block().warp().rank();
    if (lane < cluster_.size()) cluster_.map(row(r), lane)[tile] = entry;
  }

  Cluster cluster_;
  Size size_;
  int set_ = 0;
  bool begun_ = false;
  unsigned char* ring_;  // this warp's
  Entry* tables_;        // (2, rows, tiles)
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
