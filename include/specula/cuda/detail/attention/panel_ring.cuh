// SPDX-License-Identifier: MIT
// Pipelined K and V tiles for wgmma: a ring of shared-memory stages; e4m3 bytes are widened in it.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/kv_ring.cuh"
#include "specula/cuda/detail/primitives/thread/stored_kv.cuh"
#include "specula/cuda/detail/primitives/thread/wgmma_layout.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// Where the chunks of a tile of 16-bit elements lie.
template <int kHead>
struct Panels {
  static constexpr int kTileBytes = kTileKeys * kHead * 2;
  SPECULA_HD static int offset(int row, int chunk) { return panel_offset<kTileKeys>(row, chunk); }
  /// As RowsOfChunks'.
  SPECULA_HD static int below(int place, int rows) {
    return (place ^ (rows % 8 * 16)) + rows * kPanelRowBytes;
  }
};
/// Where chunks of bytes are kept until they are widened.
template <int kHead>
struct NarrowPanels : Panels<kHead> {
  SPECULA_HD static int offset(int row, int chunk) { return narrow_offset<kTileKeys>(row, chunk); }
};

template <class Element, class Stored, int kHead, int kWarps, int kStages>
class PanelRing : public KvRing<Stored, kHead, kWarps, kStages, Panels<kHead>> {
  static_assert(sizeof(Stored) == sizeof(Element), "nothing to widen");

 public:
  using KvRing<Stored, kHead, kWarps, kStages, Panels<kHead>>::KvRing;
};

template <class Element, int kHead, int kWarps, int kStages>
class PanelRing<Element, Float8E4M3, kHead, kWarps, kStages>
    : public KvRing<Float8E4M3, kHead, kWarps, kStages, NarrowPanels<kHead>> {
  using Base = KvRing<Float8E4M3, kHead, kWarps, kStages, NarrowPanels<kHead>>;

 public:
  using Base::Base;

  /// Widens the bytes that this lane copied to a stage, once they have landed, to elements, columns in the
  /// order of StoredKv. No lane touches another lane's copies.
  template <class Memory>
  SPECULA_HD void widen(Memory& memory, int stage) const {
    constexpr int kAtOnce = 2;  // loads in flight: a thread that copies has few registers
    static_assert(Base::kCopies % kAtOnce == 0, "whole batches");
    // Which half of the columns is written where the bytes were.
    const int here = this->chunk() / 4 % 2 == 0 ? 8 : 0, there = 8 - here;
    SPECULA_UNROLL
    for (int first = 0; first < Base::kCopies; first += kAtOnce) {
      std::uint32_t bytes[kAtOnce][4], wide[4];
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) memory.load(this->shared(this->place(first + i, stage)), bytes[i]);
      SPECULA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int place = this->place(first + i, stage);
        SPECULA_UNROLL
        for (int j = 0; j < 4; ++j) wide[j] = detail::widen(Element{}, bytes[i][j] << here);
        memory.store(this->shared(place), wide);
        SPECULA_UNROLL
        for (int j = 0; j < 4; ++j) wide[j] = detail::widen(Element{}, bytes[i][j] << there);
        memory.store(this->shared(place ^ 16), wide);
      }
    }
  }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
