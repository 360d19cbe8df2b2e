// SPDX-License-Identifier: MIT
// Warpgroup-level tensor core instructions: wgmma and its fences, for four warps from one whose rank is a
// multiple of 4. They are asynchronous: a thread must not touch their registers and tiles before it has
// waited.
#pragma once

#include <cstdint>
#include <type_traits>

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/thread/shared_address.cuh"

namespace specula {
namespace cuda {
namespace detail {

#ifdef __CUDACC__

// wgmma exists on sm_90a only; elsewhere these functions do nothing.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SPECULA_HAS_WGMMA
#endif
#ifdef SPECULA_HAS_WGMMA
// clang-format off
#define SPECULA_SUMS(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define SPECULA_PRODUCT_64(types)                                                                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                 \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " {"                                     \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                     \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "                         \
               "{%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"                                                   \
               : SPECULA_SUMS(0), SPECULA_SUMS(1), SPECULA_SUMS(2), SPECULA_SUMS(3),                        \
                 SPECULA_SUMS(4), SPECULA_SUMS(5), SPECULA_SUMS(6), SPECULA_SUMS(7)                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed)             \
               : "memory")
#define SPECULA_PRODUCT_128(types)                                                                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                 \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {"                                    \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                     \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                           \
               "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                           \
               "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "                         \
               "{%64,%65,%66,%67}, %68, p, 1, 1, %70;\n}"                                                   \
               : SPECULA_SUMS(0), SPECULA_SUMS(1), SPECULA_SUMS(2), SPECULA_SUMS(3),                        \
                 SPECULA_SUMS(4), SPECULA_SUMS(5), SPECULA_SUMS(6), SPECULA_SUMS(7),                        \
                 SPECULA_SUMS(8), SPECULA_SUMS(9), SPECULA_SUMS(10), SPECULA_SUMS(11),                      \
                 SPECULA_SUMS(12), SPECULA_SUMS(13), SPECULA_SUMS(14), SPECULA_SUMS(15)                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed)             \
               : "memory")
// clang-format on
#endif

/// A thread of a warpgroup. Sums d of a product with N columns are those of m64nNk16: warp w of the group has
/// rows 16 w to 16 w + 15, of which a lane has in d[n][i] the element c_cell(lane, i) of columns 8 n and on;
/// of A it has the same rows, as a_cell() says.
struct DeviceWarpgroup {
  /// d = A B, or d += A B if `add`: A, 64 x 16, in registers; B, 16 x N, as the descriptor says, MN-major if
  /// kTransposed. `a` and `d` are not touched, and B is not written, before wait_products() and settle().
  template <int kTransposed, class Element, int kEights>
  SPECULA_HD static void multiply(Element, float (&d)[kEights][4], const std::uint32_t (&a)[4],
                                  std::uint64_t b, int add) {
    constexpr bool kBFloat16 = std::is_same<Element, BFloat16>::value;
    static_assert(kBFloat16 || std::is_same<Element, Half>::value, "BFloat16 or Half");
    static_assert(kEights == 8 || kEights == 16, "64 or 128 columns");
#ifdef SPECULA_HAS_WGMMA
    if constexpr (kEights == 8 && kBFloat16)
      SPECULA_PRODUCT_64("bf16.bf16");
    else if constexpr (kEights == 8)
      SPECULA_PRODUCT_64("f16.f16");
    else if constexpr (kBFloat16)
      SPECULA_PRODUCT_128("bf16.bf16");
    else
      SPECULA_PRODUCT_128("f16.f16");
#else
    static_cast<void>(d), static_cast<void>(a), static_cast<void>(b), static_cast<void>(add);
#endif
  }

  /// Call before the first product whose registers other instructions have touched.
  SPECULA_HD static void fence_products() {
#ifdef SPECULA_HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  /// The products since the last commit form a group, possibly empty.
  SPECULA_HD static void commit_products() {
#ifdef SPECULA_HAS_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
  /// Waits until at most the kGroups youngest groups are in flight.
  template <int kGroups>
  SPECULA_HD static void wait_products() {
#ifdef SPECULA_HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
#endif
  }
  /// After the wait: the compiler does not read `d` earlier than here.
  template <int kCount>
  SPECULA_HD static void settle(float (&d)[kCount][4]) {
#ifdef SPECULA_HAS_WGMMA
    SPECULA_UNROLL
    for (int n = 0; n < kCount; ++n)
      asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
#else
    static_cast<void>(d);
#endif
  }

  /// Orders writes to shared memory that this thread sees, by any means, before the products that it starts:
  /// products read through another proxy.
  SPECULA_HD static void fence_memory() {
#ifdef SPECULA_HAS_WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }
  /// All threads of a warpgroup together: sets the number of registers per thread from here on. A block has
  /// those that it was launched with: a warpgroup that raises its number waits until others have lowered
  /// theirs.
  template <int kRegisters>
  SPECULA_HD static void raise_registers() {
#ifdef SPECULA_HAS_WGMMA
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
  }
  template <int kRegisters>
  SPECULA_HD static void lower_registers() {
#ifdef SPECULA_HAS_WGMMA
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
  }
  /// A barrier of the block's first kThreads threads, which need not be at one place (not .aligned).
  template <int kThreads>
  SPECULA_HD static void sync_first() {
#ifdef SPECULA_HAS_WGMMA
    asm volatile("barrier.sync 1, %0;" ::"n"(kThreads) : "memory");
#endif
  }
  /// The shared-memory address from which descriptors are made.
  SPECULA_HD static std::uint32_t shared_address(const void* shared) {
    return detail::shared_address(shared);
  }
};

#ifdef SPECULA_HAS_WGMMA
#undef SPECULA_SUMS
#undef SPECULA_PRODUCT_64
#undef SPECULA_PRODUCT_128
#endif

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
