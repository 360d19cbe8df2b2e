// Last-block reduction: the last block of a launch to finish merges the results of all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/group.cuh"

namespace specula {
namespace cuda {
namespace detail {

constexpr std::size_t kFlagBytes = 16;

/// Orders this thread's earlier reads and writes before its later ones, for threads of other blocks.
SPECULA_HD void device_fence() {
#ifdef __CUDA_ARCH__
  __threadfence();
#endif
}

/// True in all threads of the last of `all` blocks to arrive; device memory that the others wrote before is
/// visible to it. `arrived` is 0 before, and again afterwards. `flag` is shared.
template <class Block>
SPECULA_HD bool is_last_to_arrive(Block block, std::int32_t* arrived, int all, std::int32_t* flag) {
  block.sync();
  if (block.rank() == 0) {
    device_fence();
    const bool last = atomic_add(arrived, std::int32_t{1}) == all - 1;
    if (last) *arrived = 0;
    *flag = last ? 1 : 0;
    device_fence();
  }
  block.sync();
  return *flag != 0;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
