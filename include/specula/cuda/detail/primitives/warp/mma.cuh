// SPDX-License-Identifier: MIT
// Warp-level tensor core instructions: mma.sync and ldmatrix. primitives/thread/mma_layout.cuh gives the
// layout. The warp's type selects overloads for other warps.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/group.cuh"
#include "specula/cuda/detail/primitives/thread/shared_address.cuh"

namespace specula {
namespace cuda {

#ifdef __CUDACC__

/// c += A B, m16n8k16, in float.
SPECULA_HD void mma(DeviceWarp, BFloat16, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                    std::uint32_t b1) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  static_cast<void>(c), static_cast<void>(a), static_cast<void>(b0), static_cast<void>(b1);
#endif
}
SPECULA_HD void mma(DeviceWarp, Half, float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                    std::uint32_t b1) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  static_cast<void>(c), static_cast<void>(a), static_cast<void>(b0), static_cast<void>(b1);
#endif
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory: lanes 8 i to 8 i + 7 point at the rows of
/// matrix i, 16 bytes each. A lane gets of matrix i, in register i, row lane / 4, columns 2 (lane % 4) and
/// the next one.
SPECULA_HD void load_matrices(DeviceWarp, const void* row, std::uint32_t (&out)[4]) {
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(detail::shared_address(row))
               : "memory");
#else
  static_cast<void>(row), static_cast<void>(out);
#endif
}
/// The same of the transposed matrices: column lane / 4, rows 2 (lane % 4) and the next one.
SPECULA_HD void load_transposed(DeviceWarp, const void* row, std::uint32_t (&out)[4]) {
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(detail::shared_address(row))
               : "memory");
#else
  static_cast<void>(row), static_cast<void>(out);
#endif
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
