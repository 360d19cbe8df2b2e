// SPDX-License-Identifier: MIT
// Online softmax helpers shared by the mma.sync and wgmma attention kernels. A lane holds parts of two rows
// of a matrix m of sums: m[n][i] is the element c_cell(lane, i) of columns 8 n and on.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/attention_layout.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"
#include "specula/cuda/detail/primitives/thread/stored_kv.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The fragments of A of a lane, for all kSteps * 16 columns, as StoredKv `Kv` orders them: `query(row)`
/// points at the elements of a row, 4-byte aligned, null: a row of zeros.
template <class Kv, int kSteps, class Query>
SPECULA_HD void load_queries(int lane, Query query, std::uint32_t (&q)[kSteps][4]) {
  SPECULA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const auto* from = query(a_cell(lane, half).row);
    SPECULA_UNROLL
    for (int k = 0; k < kSteps; ++k) SPECULA_UNROLL
    for (int reg = half; reg < 4; reg += 2)
      q[k][reg] = from ? Kv::load_pair(from, 16 * k + a_cell(lane, reg).column) : 0;
  }
}

/// Scores of masked keys become -infinity: sees(half)(key) for the lane's row of that half.
template <int kCount, class Sees>
SPECULA_HD void mask_scores(int lane, Sees sees, float (&s)[kCount][4]) {
  SPECULA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::uint64_t seen = sees(half) >> c_cell(lane, 0).column;
    SPECULA_UNROLL
    for (int n = 0; n < kCount; ++n) SPECULA_UNROLL
    for (int i = 2 * half; i < 2 * half + 2; ++i)
      if ((seen >> (8 * n + i % 2) & 1) == 0) s[n][i] = -infinity();
  }
}

/// top[half]: the greatest score of the row of that half, in all its lanes.
template <int kCount, class Warp>
SPECULA_HD void find_maxima(Warp warp, const float (&s)[kCount][4], float (&top)[2]) {
  top[0] = top[1] = -infinity();
  SPECULA_UNROLL
  for (int n = 0; n < kCount; ++n) SPECULA_UNROLL
  for (int i = 0; i < 4; ++i) top[i / 2] = maximum(top[i / 2], s[n][i]);
  SPECULA_UNROLL
  for (int half = 0; half < 2; ++half) SPECULA_UNROLL
  for (int mask = 1; mask < 4; mask *= 2) top[half] = maximum(top[half], warp.shuffle_xor(top[half], mask));
}

/// Adds up the sums of the lanes that share a row.
template <class Warp>
SPECULA_HD void add_lanes(Warp warp, float (&sums)[2]) {
  SPECULA_UNROLL
  for (int half = 0; half < 2; ++half) SPECULA_UNROLL
  for (int mask = 1; mask < 4; mask *= 2) sums[half] = sum(sums[half], warp.shuffle_xor(sums[half], mask));
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
