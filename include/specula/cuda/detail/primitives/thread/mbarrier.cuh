// SPDX-License-Identifier: MIT
// mbarrier: shared-memory barriers with arrive and wait apart, by which copies and products hand over the
// stages of a ring. PTX ISA, "mbarrier".
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/primitives/thread/shared_address.cuh"

namespace specula {
namespace cuda {
namespace detail {

#ifdef __CUDACC__

/// A barrier is 8 bytes, 8-byte aligned. A phase ends after the number of arrivals that init() set.
struct DeviceBarriers {
  /// By one thread; others may use it after a barrier of the block.
  SPECULA_HD static void init(std::uint64_t* barrier, int arrivals) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
#else
    static_cast<void>(barrier), static_cast<void>(arrivals);
#endif
  }
  /// This thread's earlier writes are visible to threads that wait for the phase.
  SPECULA_HD static void arrive(std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#else
    static_cast<void>(barrier);
#endif
  }
  /// The same, without waiting, once all copies that this thread has started have landed.
  SPECULA_HD static void arrive_after_copies(std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
                 : "memory");
#else
    static_cast<void>(barrier);
#endif
  }
  /// Waits until the phase of this parity has ended: phases count from 0, and the one before the first counts
  /// as ended.
  SPECULA_HD static void wait_for(std::uint64_t* barrier, std::uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    std::uint32_t done = 0;
    while (done == 0)
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(done)
          : "r"(shared_address(barrier)), "r"(parity)
          : "memory");
#else
    static_cast<void>(barrier), static_cast<void>(parity);
#endif
  }
};

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
