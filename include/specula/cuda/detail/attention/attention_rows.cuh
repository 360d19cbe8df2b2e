// SPDX-License-Identifier: MIT
// Online softmax attention of sixteen rows in a warp's registers, over tiles of keys (FlashAttention-2, Dao
// 2023), products by mma.m16n8k16.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/attention_layout.cuh"
#include "specula/cuda/detail/attention/softmax_rows.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"
#include "specula/cuda/detail/primitives/thread/stored_kv.cuh"
#include "specula/cuda/detail/primitives/warp/mma.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The rows' fragments of A, in registers.
template <int kHead>
struct HeldQueries {
  std::uint32_t q[kHead / 16][4];

  /// As load_queries().
  template <class Kv, class Query>
  SPECULA_HD void load(int lane, Query query) {
    load_queries<Kv>(lane, query, q);
  }
  SPECULA_HD void get(int step, std::uint32_t (&a)[4]) const {
    SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = q[step][i];
  }
};

/// The same in shared memory, for warps that share their rows.
template <int kHead>
struct SharedQueries {
  struct alignas(16) Fragment {  // a lane's
    std::uint32_t a[4];
  };
  static constexpr int kBytes = 16 * kHead * 2;
  unsigned char* at;

  SharedQueries() = default;
  /// `shared`: kBytes, 16-byte aligned.
  SPECULA_HD SharedQueries(int lane, unsigned char* shared) : at(shared + 16 * lane) {}

  /// Warp `part` of kParts loads its part of them; a barrier follows.
  template <class Kv, int kParts, class Query>
  SPECULA_HD void load(int lane, Query query, int part) {
    constexpr int kSteps = kHead / 16 / kParts;
    static_assert(kSteps > 0, "each has a part");
    std::uint32_t q[kSteps][4];
    load_queries<Kv>(
        lane,
        [&](int row) {
          const auto* from = query(row);
          return from ? from + 16 * kSteps * part : from;
        },
        q);
    SPECULA_UNROLL
    for (int k = 0; k < kSteps; ++k)
      *reinterpret_cast<Fragment*>(at + (kSteps * part + k) * 512) = {{q[k][0], q[k][1], q[k][2], q[k][3]}};
  }
  SPECULA_HD void get(int step, std::uint32_t (&a)[4]) const {
    const Fragment mine = *reinterpret_cast<const Fragment*>(at + step * 512);
    SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = mine.a[i];
  }
};

template <class Element, int kHead, int kKeys, class Stored = Element, class Queries = HeldQueries<kHead>>
class AttentionRows {
  using Kv = StoredKv<Element, Stored>;

 public:
  static_assert(kHead % (16 * Kv::kSteps) == 0 && kKeys % 16 == 0, "whole products only");

  SPECULA_HD AttentionRows() : maximum_{kLowest, kLowest}, sum_{0, 0} {
    SPECULA_UNROLL
    for (int n = 0; n < kHead / 8; ++n) SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) o_[n][i] = 0;
  }

  /// Adds kKeys keys: rows `row` and on of the tiles `k` and `v`. Bit i of sees(half) says whether key i is
  /// visible to this lane's row of that half; it is called only if kMasked.
  template <bool kMasked, class Warp, class Sees>
  SPECULA_HD void add(Warp warp, const Queries& queries, const unsigned char* k, const unsigned char* v,
                      int row, const ScoreMap& score, Sees sees) {
    float s[kKeys / 8][4];
    multiply_keys(warp, queries, k, row, s);
    if (score.cap > 0) {
      SPECULA_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) SPECULA_UNROLL
      for (int i = 0; i < 4; ++i) s[n][i] = score.capped(s[n][i]);
    } else {
      SPECULA_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) SPECULA_UNROLL
      for (int i = 0; i < 4; ++i) s[n][i] = score.plain(s[n][i]);
    }
    if (kMasked) mask_scores(warp.rank(), sees, s);
    raise_maximum(warp, s);
    SPECULA_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) {
      s[n][i] = exp2_fast(difference(s[n][i], maximum_[i / 2]));
      sum_[i / 2] = specula::cuda::detail::sum(sum_[i / 2], s[n][i]);
    }
    multiply_values(warp, v, row, s);
  }

  /// Call once, at the end: adds up the sums of the lanes that share a row.
  template <class Warp>
  SPECULA_HD void finish(Warp warp) {
    add_lanes(warp, sum_);
  }

  /// Of this lane's row c_cell(lane, 2 * half).row: greatest exponent and, after finish(), sum of weights.
  SPECULA_HD float maximum(int half) const { return maximum_[half]; }
  SPECULA_HD float sum(int half) const { return sum_[half]; }
  /// Weighted sums of the values: column 8 * n + c_cell(lane, i).column of the products (StoredKv).
  SPECULA_HD float output(int n, int i) const { return o_[n][i]; }

 private:
  SPECULA_HD static int offset(int row, int chunk) { return chunk_offset<kHead, sizeof(Stored)>(row, chunk); }

  /// s = Q K^T.
  template <class Warp>
  SPECULA_HD void multiply_keys(Warp warp, const Queries& queries, const unsigned char* k, int row,
                                float (&s)[kKeys / 8][4]) const {
    const Cell at = key_cell(warp.rank());
    SPECULA_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
    SPECULA_UNROLL
    for (int c = 0; c < kHead / (16 * Kv::kSteps); ++c) {
      std::uint32_t q[Kv::kSteps][4];
      SPECULA_UNROLL
      for (int step = 0; step < Kv::kSteps; ++step) queries.get(Kv::kSteps * c + step, q[step]);
      SPECULA_UNROLL
      for (int n = 0; n < kKeys / 8; n += 2) {
        std::uint32_t b[4], f[4];
        load_matrices(warp, k + offset(row + 8 * n + at.row, 2 * c + at.column), b);
        SPECULA_UNROLL
        for (int step = 0; step < Kv::kSteps; ++step) {
          Kv::keys(b, step, f);
          mma(warp, Element{}, s[n], q[step], f[0], f[1]);
          mma(warp, Element{}, s[n + 1], q[step], f[2], f[3]);
        }
      }
    }
  }

  /// Raises the maxima to those of s and rescales the sums. The branch pays: maxima seldom rise in a long
  /// row.
  template <class Warp>
  SPECULA_HD void raise_maximum(Warp warp, const float (&s)[kKeys / 8][4]) {
    float top[2];
    find_maxima(warp, s, top);
    if (warp.ballot(top[0] > maximum_[0] || top[1] > maximum_[1]) == 0) return;
    SPECULA_UNROLL
    for (int half = 0; half < 2; ++half) {
      top[half] = specula::cuda::detail::maximum(maximum_[half], top[half]);
      const float factor = exp2_fast(difference(maximum_[half], top[half]));
      maximum_[half] = top[half];
      sum_[half] = product(sum_[half], factor);
      SPECULA_UNROLL
      for (int n = 0; n < kHead / 8; ++n) SPECULA_UNROLL
      for (int i = 2 * half; i < 2 * half + 2; ++i) o_[n][i] = product(o_[n][i], factor);
    }
  }

  /// O += P V. C of the first product has the layout of A of the second.
  template <class Warp>
  SPECULA_HD void multiply_values(Warp warp, const unsigned char* v, int row,
                                  const float (&p)[kKeys / 8][4]) {
    const Cell at = value_cell(warp.rank());
    SPECULA_UNROLL
    for (int n = 0; n < kKeys / 8; n += 2) {
      const std::uint32_t a[4] = {pack(Element{}, p[n][0], p[n][1]), pack(Element{}, p[n][2], p[n][3]),
                                  pack(Element{}, p[n + 1][0], p[n + 1][1]),
                                  pack(Element{}, p[n + 1][2], p[n + 1][3])};
      SPECULA_UNROLL
      for (int c = 0; c < kHead / (16 * Kv::kSteps); ++c) {
        std::uint32_t b[4], f[4];
        load_transposed(warp, v + offset(row + 8 * n + at.row, 2 * c + at.column), b);
        SPECULA_UNROLL
        for (int step = 0; step < Kv::kSteps; ++step) {
          Kv::values(b, step, f);
          mma(warp, Element{}, o_[2 * (Kv::kSteps * c + step)], a, f[0], f[1]);
          mma(warp, Element{}, o_[2 * (Kv::kSteps * c + step) + 1], a, f[2], f[3]);
        }
      }
    }
  }

  float o_[kHead / 8][4], maximum_[2], sum_[2];
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
