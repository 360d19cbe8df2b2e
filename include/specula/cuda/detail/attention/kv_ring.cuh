// SPDX-License-Identifier: MIT
// Pipelined K and V tiles for mma.sync: a ring of shared-memory stages filled by async copies.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/paged_kv.cuh"
#include "specula/cuda/detail/attention/attention_layout.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Where the chunks of a tile lie, for ldmatrix.
template <int kHead, class Stored>
struct RowsOfChunks {
  static constexpr int kTileBytes = kTileKeys * kHead * sizeof(Stored);
  SPECULA_HD static int offset(int row, int chunk) { return chunk_offset<kHead, sizeof(Stored)>(row, chunk); }
  /// The place of the same chunk `rows` rows below `place`, where that addition of rows carries nothing in
  /// their three lowest bits.
  SPECULA_HD static int below(int place, int rows) {
    constexpr int kRow = kHead * sizeof(Stored);
    return (place ^ ((kRow >= 128 ? rows % 8 : rows / 2 % 4) * 16)) + rows * kRow;
  }
};

/// Each of kWarps warps copies kTileKeys / kWarps keys of a tile, K and V. One lane looks up a row's address,
/// a tile ahead of the copies. Keys outside [load, end) become zeros and are not read: their slots may hold
/// NaN, and 0 * NaN would reach the output.
template <class Stored, int kHead, int kWarps, int kStages, class Place = RowsOfChunks<kHead, Stored>>
class KvRing {
  static constexpr int kOwn = kTileKeys / kWarps, kRowBytes = kHead * sizeof(Stored),
                       kChunks = kRowBytes / 16, kTileBytes = Place::kTileBytes,
                       kRows = 32 / kChunks;  // that a warp copies at once
  static_assert(2 * kOwn <= 32 && kOwn * kChunks % 32 == 0, "a lane a row, whole warps of copies");
  static_assert(kOwn % 8 == 0 && (kRows == 2 || kRows == 4 || kRows == 8),
                "rows that Place::below() can add");

 public:
  static constexpr int kStageBytes = 2 * kTileBytes;

  /// `shared`: kStages * kStageBytes, 128-byte aligned.
  SPECULA_HD KvRing(const PagedKv<Stored>& kv, PageSpan span, Divisor page_size, int head, KeyRange keys,
                    int warp, int lane, unsigned char* shared)
      : kv_(kv),
        span_(span),
        page_size_(page_size),
        head_(head),
        load_(keys.load),
        end_(keys.end),
        warp_(warp),
        lane_(lane),
        shared_(shared) {}

  SPECULA_HD const unsigned char* k(int stage) const { return shared_ + stage * kStageBytes; }
  SPECULA_HD const unsigned char* v(int stage) const { return k(stage) + kTileBytes; }

  /// Where this lane's row of a tile lies, and whether all of its warp's rows are keys of one page: what
  /// copy() of that tile needs from every lane. Lanes of the lower half hold rows of K, the others rows of V.
  struct Located {
    std::uintptr_t row;
    bool whole;
  };
  SPECULA_HD Located locate(int tile) const {
    const int key = first_key(tile) + lane_ % kOwn;
    const bool of_v = lane_ / kOwn % 2 != 0;
    const Stored* at = kv_.k.data;  // anything that may be named
    if (key >= load_ && key < end_)
      at = row_at(of_v ? kv_.v : kv_.k, span_, page_size_, kv_.page_count, static_cast<std::uint32_t>(key),
                  head_);
    return {reinterpret_cast<std::uintptr_t>(at), in_one_page(first_key(tile))};
  }

  /// Starts the copies of a tile; `located` is locate(tile). All lanes of the warp together.
  template <class Warp, class Copies>
  SPECULA_HD void copy(Warp warp, Copies& copies, Located located, int tile, int stage) const {
    if (located.whole) {
      copy_page(warp, copies, located.row, stage);
      return;
    }
#ifdef __CUDA_ARCH__
#pragma unroll 1  // few registers
#endif
    for (int i = 0; i < kCopies; ++i) {
      const std::uintptr_t from =
          warp.shuffle(located.row, row(i)) + static_cast<std::uintptr_t>(16 * chunk());
      const int key = first_key(tile) + row(i) % kOwn;
      const bool real = key >= load_ && key < end_;
      copies.copy(shared(place(i, stage)), reinterpret_cast<const void*>(from), real);
    }
  }

 protected:
  // What a lane copies of a tile: chunk() of row(0) .. row(kCopies - 1) of its warp's kOwn rows of K, then of
  // V, to place(i).
  static constexpr int kCopies = 2 * kOwn / kRows;
  SPECULA_HD int chunk() const { return lane_ % kChunks; }
  SPECULA_HD int row(int i) const { return i * kRows + lane_ / kChunks; }
  SPECULA_HD int place(int i, int stage) const {
    return stage * kStageBytes + row(i) / kOwn * kTileBytes +
           Place::offset(warp_ * kOwn + row(i) % kOwn, chunk());
  }
  SPECULA_HD unsigned char* shared(int place) const { return shared_ + place; }

 private:
  SPECULA_HD int first_key(int tile) const { return tile * kTileKeys + warp_ * kOwn; }

  /// Whether keys key .. key + kOwn - 1 are all there and in one page: the same in all lanes.
  SPECULA_HD bool in_one_page(int key) const {
    if (key < load_ || key + kOwn > end_) return false;
    const auto slot = static_cast<std::uint32_t>(key);
    return slot - page_size_.quotient(slot) * page_size_.by + kOwn <= page_size_.by;
  }

  /// Rows of one page follow each other: their begins come from two lanes, the rest are sums.
  template <class Warp, class Copies>
  SPECULA_HD void copy_page(Warp warp, Copies& copies, std::uintptr_t located, int stage) const {
    SPECULA_UNROLL
    for (int of_v = 0; of_v < 2; ++of_v) {
      const auto stride = static_cast<std::uintptr_t>((of_v ? kv_.v : kv_.k).token_stride) * sizeof(Stored);
      std::uintptr_t from = warp.shuffle(located, of_v * kOwn) +
                            static_cast<std::uintptr_t>(row(0)) * stride +
                            static_cast<std::uintptr_t>(16 * chunk());
      const int to = place(of_v * (kCopies / 2), stage);
      SPECULA_UNROLL
      for (int i = 0; i < kCopies / 2; ++i, from += kRows * stride)
        copies.copy(shared(Place::below(to, i * kRows)), reinterpret_cast<const void*>(from), true);
    }
  }

  const PagedKv<Stored>& kv_;
  PageSpan span_;
  Divisor page_size_;
  int head_, load_, end_, warp_, lane_;
  unsigned char* shared_;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
