// SPDX-License-Identifier: MIT
// Last-block reduction: the last block of a launch to finish merges the results of all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/group.cuh"

#ifdef __CUDACC__
#include <cuda/atomic>
#endif

namespace specula {
namespace cuda {
namespace detail {

constexpr std::size_t kFlagBytes = 16;

/// Counts one more block, whose writes are visible to those that come later, and theirs to it; returns how
/// many came before.
template <class Count>
SPECULA_HD int count_block(Count* arrived) {
#ifdef __CUDA_ARCH__
  return static_cast<int>(::cuda::atomic_ref<Count, ::cuda::thread_scope_device>(*arrived).fetch_add(
      1, ::cuda::memory_order_acq_rel));
#else
  return static_cast<int>(atomic_add(arrived, Count{1}));
#endif
}

/// True in all threads of the last of `all` blocks to arrive; device memory that the others wrote before is
/// visible to it. `arrived` is 0 before, and again afterwards. `flag` is shared.
template <class Block, class Count>
SPECULA_HD bool is_last_to_arrive(Block block, Count* arrived, int all, std::int32_t* flag) {
  block.sync();
  if (block.rank() == 0) {
    const bool last = count_block(arrived) == all - 1;
    if (last) *arrived = 0;
    *flag = last ? 1 : 0;
  }
  block.sync();
  return *flag != 0;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
