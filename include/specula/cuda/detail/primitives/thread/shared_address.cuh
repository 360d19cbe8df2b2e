// SPDX-License-Identifier: MIT
// Shared-memory addresses as operands of PTX instructions.
#pragma once

#include "specula/cuda/args/integers.cuh"

namespace specula {
namespace cuda {
namespace detail {

#ifdef __CUDACC__

/// Of a pointer into the block's shared memory, from its begin; 0 on the host.
SPECULA_HD std::uint32_t shared_address(const void* shared) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
#else
  static_cast<void>(shared);
  return 0;
#endif
}

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
