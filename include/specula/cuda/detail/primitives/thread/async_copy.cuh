// SPDX-License-Identifier: MIT
// Asynchronous copies from device to shared memory: cp.async.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/thread/shared_address.cuh"

namespace specula {
namespace cuda {
namespace detail {

#ifdef __CUDACC__

/// A thread's copies. Copies that wait() has waited for are visible to this thread; to others after a
/// barrier.
struct DeviceCopies {
  /// 16 bytes, both ends 16-byte aligned; zeros, and nothing is read, where `real` is false.
  SPECULA_HD static void copy(void* to_shared, const void* from, bool real) {
#ifdef __CUDA_ARCH__
    const int bytes = real ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
#else
    static_cast<void>(to_shared), static_cast<void>(from), static_cast<void>(real);
#endif
  }
  /// The copies since the last commit form a group, possibly empty.
  SPECULA_HD static void commit() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  /// Waits until at most the `kGroups` youngest groups are in flight.
  template <int kGroups>
  SPECULA_HD static void wait() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
  }
  /// The thread's own reading and writing there: 16 bytes, 16-byte aligned.
  SPECULA_HD static void load(const void* shared, std::uint32_t (&words)[4]) {
#ifdef __CUDA_ARCH__
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(shared))
                 : "memory");
#else
    static_cast<void>(shared), static_cast<void>(words);
#endif
  }
  SPECULA_HD static void store(void* shared, const std::uint32_t (&words)[4]) {
#ifdef __CUDA_ARCH__
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(shared)), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
#else
    static_cast<void>(shared), static_cast<void>(words);
#endif
  }
};

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
