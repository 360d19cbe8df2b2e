// Tiles of K and V on their way through shared memory: a ring of stages that async copies fill.
#pragma once

#include "../detail/host_device.cuh"
#include "../device/paged_kv.cuh"
#include "../thread/attention_layout.cuh"
#include "../thread/mma_layout.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Where the chunks of a tile lie, for ldmatrix.
template <int kHead>
struct RowsOfChunks {
  SPECULA_HD static int offset(int row, int chunk) { return chunk_offset<kHead>(row, chunk); }
};

/// Each of kWarps warps copies kTileKeys / kWarps keys of a tile, K and V; a row's address is looked up by
/// one lane, a tile ahead of the copies. Keys outside [load, end) become zeros and are not read: what lies
/// there may be anything, NaN too, and 0 * NaN would be seen.
template <class Element, int kHead, int kWarps, int kStages, class Place = RowsOfChunks<kHead>>
class KvRing {
  static constexpr int kOwn = kTileKeys / kWarps, kChunks = kHead / 8, kTileBytes = kTileKeys * kHead * 2;
  static_assert(2 * kOwn <= 32 && kOwn * kChunks % 32 == 0, "a lane a row, whole warps of copies");

 public:
  static constexpr int kStageBytes = 2 * kTileBytes;

  /// `shared`: kStages * kStageBytes, 128-byte aligned.
  SPECULA_HD KvRing(const PagedKv<Element>& kv, PageSpan span, Divisor page_size, int head, KeyRange keys,
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

  /// Where this lane's row of a tile lies: what copy() of that tile needs from every lane. Lanes of the lower
  /// half hold rows of K, the others rows of V.
  SPECULA_HD std::uintptr_t locate(int tile) const {
    const int key = first_key(tile) + lane_ % kOwn;
    const bool of_v = lane_ / kOwn % 2 != 0;
    const Element* at = kv_.k.data;  // anything that may be named
    if (key >= load_ && key < end_)
      at = row_at(of_v ? kv_.v : kv_.k, span_, page_size_, kv_.page_count, static_cast<std::uint32_t>(key),
                  head_);
    return reinterpret_cast<std::uintptr_t>(at);
  }

  /// Starts the copies of a tile; `located` is locate(tile). All lanes of the warp together.
  template <class Warp, class Copies>
  SPECULA_HD void copy(Warp warp, Copies& copies, std::uintptr_t located, int tile, int stage) const {
    constexpr int kRows = 32 / kChunks;  // of which the warp copies at once
    unsigned char* to = shared_ + stage * kStageBytes;
    const int chunk = lane_ % kChunks;
    SPECULA_UNROLL
    for (int i = 0; i < 2 * kOwn / kRows; ++i) {
      const int row = i * kRows + lane_ / kChunks;  // K's kOwn rows, then V's
      const std::uintptr_t from = warp.shuffle(located, row) + static_cast<std::uintptr_t>(16 * chunk);
      const int key = first_key(tile) + row % kOwn;
      const bool real = key >= load_ && key < end_;
      copies.copy(to + (row / kOwn) * kTileBytes + Place::offset(warp_ * kOwn + row % kOwn, chunk),
                  reinterpret_cast<const void*>(from), real);
    }
  }

 private:
  SPECULA_HD int first_key(int tile) const { return tile * kTileKeys + warp_ * kOwn; }

  const PagedKv<Element>& kv_;
  PageSpan span_;
  Divisor page_size_;
  int head_, load_, end_, warp_, lane_;
  unsigned char* shared_;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
