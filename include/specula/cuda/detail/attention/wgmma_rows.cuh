// SPDX-License-Identifier: MIT
// Online softmax attention of 64 rows in a warpgroup's registers by wgmma: products run while the softmax of
// other keys is computed (FlashAttention-3, Shah 2024). The counterpart of attention/attention_rows.cuh.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/attention_layout.cuh"
#include "specula/cuda/detail/attention/softmax_rows.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"
#include "specula/cuda/detail/primitives/thread/wgmma_layout.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// A thread's part of it: two of the sixteen rows that its warp has, as c_cell() says. For a tile of keys, in
/// this order, with products fenced, committed and waited for by the caller:
///   multiply_keys, weigh, take_weights, multiply_values.
/// The products of multiply_values may be in flight while multiply_keys and weigh deal with the next tile.
template <class Element, int kHead, class Stored = Element>
class WgmmaRows {
  static constexpr int kKeys = kTileKeys;

 public:
  static_assert(kHead == 64 || kHead == 128, "a product has all columns");

  /// `query(row)` points at the kHead elements of row 0 .. 15 of this warp, 4-byte aligned, null: zeros.
  template <class Query>
  SPECULA_HD WgmmaRows(int lane, const ScoreMap& score, Query query)
      : score_(score), maximum_{kLowest, kLowest}, sum_{0, 0}, rise_{0, 0}, rises_(false) {
    SPECULA_UNROLL
    for (int n = 0; n < kHead / 8; ++n) SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) o_[n][i] = 0;
    // The greatest of s * factor is that of s if no factor is negative: the sign is the query's here. Nor is
    // it 0, for -infinity * 0 is no number.
    const bool negative = score.cap <= 0 && score.factor < 0;
    factor_ = score.cap > 0 ? 1.0f : larger(negative ? -score.factor : score.factor, 1e-30f);
    load_queries<StoredKv<Element, Stored>>(lane, query, q_);
    SPECULA_UNROLL
    for (int k = 0; k < kHead / 16; ++k) SPECULA_UNROLL
    for (int reg = 0; reg < 4; ++reg) q_[k][reg] ^= negative ? 0x80008000u : 0;
  }

  /// Starts S = Q K^T; `keys` is key_descriptor() of the tile.
  template <class Hopper>
  SPECULA_HD void multiply_keys(Hopper& hopper, std::uint64_t keys) {
    SPECULA_UNROLL
    for (int k = 0; k < kHead / 16; ++k)
      hopper.template multiply<0>(Element{}, s_, q_[k], keys + key_step<kKeys>(k), k > 0);
  }
  /// Starts O += P V; `values` is value_descriptor() of the tile.
  template <class Hopper>
  SPECULA_HD void multiply_values(Hopper& hopper, std::uint64_t values) {
    SPECULA_UNROLL
    for (int k = 0; k < kKeys / 16; ++k)
      hopper.template multiply<1>(Element{}, o_, p_[k], values + value_step(k), 1);
  }
  /// After the wait for either.
  template <class Hopper>
  SPECULA_HD void settle_scores(Hopper& hopper) {
    hopper.settle(s_);
  }
  template <class Hopper>
  SPECULA_HD void settle_outputs(Hopper& hopper) {
    hopper.settle(o_);
  }

  /// Turns scores into weights and raises maxima and sums, but not the outputs. view(half)(key) says whether
  /// key 0 .. 63 is visible to this lane's row of that half; it is called only if `masked`.
  template <class Warp, class Sees>
  SPECULA_HD void weigh(Warp warp, bool masked, Sees sees) {
    if (score_.cap > 0) {
      SPECULA_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) SPECULA_UNROLL
      for (int i = 0; i < 4; ++i) s_[n][i] = score_.capped(s_[n][i]);
    }
    if (masked) mask_scores(warp.rank(), sees, s_);
    raise_maximum(warp);
    SPECULA_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) {
      s_[n][i] = exp2_fast(fused(s_[n][i], factor_, -maximum_[i / 2]));
      sum_[i / 2] = specula::cuda::detail::sum(sum_[i / 2], s_[n][i]);
    }
  }

  /// Rescales the outputs to the maxima and packs the weights for multiply_values: C of the first product has
  /// the layout of A of the second.
  SPECULA_HD void take_weights() {
    if (rises_) {  // seldom in a long row
      SPECULA_UNROLL
      for (int n = 0; n < kHead / 8; ++n) SPECULA_UNROLL
      for (int i = 0; i < 4; ++i) o_[n][i] = product(o_[n][i], rise_[i / 2]);
    }
    SPECULA_UNROLL
    for (int k = 0; k < kKeys / 16; ++k) SPECULA_UNROLL
    for (int reg = 0; reg < 4; ++reg) {
      const float* pair = s_[2 * k + reg / 2] + 2 * (reg % 2);
      p_[k][reg] = pack(Element{}, pair[0], pair[1]);
    }
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
  template <class Warp>
  SPECULA_HD void raise_maximum(Warp warp) {
    float top[2];
    find_maxima(warp, s_, top);
    SPECULA_UNROLL
    for (int half = 0; half < 2; ++half)
      top[half] = specula::cuda::detail::maximum(maximum_[half], product(top[half], factor_));
    rises_ = warp.ballot(top[0] > maximum_[0] || top[1] > maximum_[1]) != 0;
    SPECULA_UNROLL
    for (int half = 0; half < 2; ++half) {
      rise_[half] = exp2_fast(difference(maximum_[half], top[half]));
      maximum_[half] = top[half];
      sum_[half] = product(sum_[half], rise_[half]);
    }
  }

  ScoreMap score_;
  float factor_;
  std::uint32_t q_[kHead / 16][4], p_[kKeys / 16][4];
  float s_[kKeys / 8][4], o_[kHead / 8][4], maximum_[2], sum_[2], rise_[2];
  bool rises_;
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
