// SPDX-License-Identifier: MIT
// Tree attention by wgmma: for trees of many packed rows on Hopper.
//
// Work: one block has one split of the keys, for one tile of packed rows of a KV head. The last warpgroup
// copies keys and values; one or two others multiply 64 rows each.
// Traffic: K and V pass through a ring of 6 (heads of 128) or 8 (heads of 64) tiles of 64 keys in shared
// memory; queries and sums of outputs are in registers.
// Forms: 64 rows for trees of at most 64 packed rows, else 128, by fill_wgmma_plan(); a cache of Element or
// Float8E4M3. make_tree_attention_plan() takes this kernel above 32 packed rows (wants_wgmma()).
// Reference: doubles in tests/support/attention_cases.hpp; tests/cuda/api/tree_attention_wgmma.cpp;
// bench/cuda/attention_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/tree_attention.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program attention).
#pragma once

#include "specula/cuda/api/tree_attention_plan.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/tree_attention_wgmma_block.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/primitives/thread/async_copy.cuh"
#include "specula/cuda/detail/primitives/thread/mbarrier.cuh"
#include "specula/cuda/detail/primitives/warp/wgmma.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The variants; one group's results have the same bits in all of them.
template <int kHead>
struct WgmmaShapes {
  static constexpr int kStages = kHead == 128 ? 6 : 8;
  using Rows64 = WgmmaShape<kHead, 1, kStages>;
  using Rows128 = WgmmaShape<kHead, 2, kStages>;
};

/// Calls f(shape) with the variant of `rows` rows.
template <int kHead, class F>
auto with_wgmma_shape(int rows, F f) {
  using Shapes = WgmmaShapes<kHead>;
  if (rows <= 64) return f(typename Shapes::Rows64{});
  return f(typename Shapes::Rows128{});
}

/// As fill_plan(), for the variants above.
inline bool fill_wgmma_plan(TreeAttentionGeometry* plan, const TreeAttentionCapacity& c, int head_size,
                            const AttentionPlaces& places) {
  if (c.max_nodes < 1 || c.kv_heads < 1 || c.query_heads < 1) return false;
  const std::int64_t rows = static_cast<std::int64_t>(c.max_nodes) * (c.query_heads / c.kv_heads);
  return fill_plan(plan, c, head_size, places, rows <= 64 ? 64 : 128);
}

#ifdef __CUDACC__

/// What the body asks of the device.
struct DeviceHopper : DeviceCopies, DeviceBarriers, DeviceWarpgroup {};

template <class Shape, class Element, class Stored = Element>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    tree_attention_wgmma_kernel(const __grid_constant__ TreeAttentionLaunch<Element, Stored> launch) {
#ifdef SPECULA_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char wgmma_memory[];
  // Aligned by hand: the alignment of a declaration is not guaranteed.
  const std::uint32_t beyond = DeviceWarpgroup::shared_address(wgmma_memory) % kAtomBytes;
  unsigned char* shared = wgmma_memory + (beyond == 0 ? 0 : kAtomBytes - beyond);
  const DeviceCluster cluster;
  DeviceHopper hopper;
  attend_with_wgmma<Shape>(cluster, hopper, launch, static_cast<int>(blockIdx.x) / cluster.size(), shared);
#endif
}

#endif  // __CUDACC__

}  // namespace detail

#ifdef __CUDACC__

/// A plan for tree_attention_wgmma(), as make_tree_attention_mma_plan(). Correct for any number of rows;
/// wants_wgmma() tells when it is faster. Must not be called during a capture. Errors:
/// cudaErrorNotSupported if the program has no code for sm_90a or the device is another one;
/// cudaErrorInvalidValue if a capacity is out of range; otherwise those of the driver.
template <class Element, int kHead, class Stored = Element>
cudaError_t make_tree_attention_wgmma_plan(TreeAttentionPlan<Element, kHead, Stored>* plan,
                                           const TreeAttentionCapacity& capacity, int device) {
  using namespace detail;
  using Plan = TreeAttentionPlan<Element, kHead, Stored>;
  return make_attention_plan<kHead>(
      plan, device, [&](Plan* out) { return fill_wgmma_plan(out, capacity, kHead, AttentionPlaces{}); },
      [](Plan* out, const DeviceLimits& limits) {
        return with_wgmma_shape<kHead>(out->rows, [&](auto shape) {
          using Shape = decltype(shape);
          const auto kernel = tree_attention_wgmma_kernel<Shape, Element, Stored>;
          if (limits.version != 90) return cudaErrorNotSupported;
          cudaFuncAttributes attributes{};
          const cudaError_t e = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
          if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction) {
            cudaGetLastError();
            return cudaErrorNotSupported;
          }
          if (e != cudaSuccess) return e;
          // Compiled for anything but sm_90a the kernel is empty. A block that is launched with fewer
          // registers than its roles take would deadlock.
          constexpr int kNeeded =
              Shape::kConsumers * Shape::kConsumerRegisters + Shape::kProducers * Shape::kProducerRegisters;
          if (attributes.numRegs * Shape::kThreads < kNeeded || Shape::kSharedBytes > limits.shared_bytes)
            return cudaErrorNotSupported;
          return finish_plan<Shape>(out, kernel, limits);
        });
      });
}

/// As tree_attention_mma(), in every argument, with a plan of make_tree_attention_wgmma_plan(). Results
/// differ from its by rounding alone. Bytes are widened by the warps that copy them, in shared memory. Cost:
/// one read of K and V for every 64 or 128 packed rows; one launch.
/// @code
/// TreeAttentionPlan<BFloat16, 128> plan;  // workspace and arguments as in the example of tree_attention()
/// make_tree_attention_wgmma_plan(&plan, attention_capacity, device);
/// tree_attention_wgmma(plan, attention_args, workspace, stream);
/// @endcode
template <class Element, int kHead, class Stored = Element>
cudaError_t tree_attention_wgmma(const TreeAttentionPlan<Element, kHead, Stored>& plan,
                                 const TreeAttentionArgs<Element, Stored>& args, const Workspace& workspace,
                                 cudaStream_t stream) {
  using namespace detail;
  return with_wgmma_shape<kHead>(plan.rows, [&](auto shape) {
    using Shape = decltype(shape);
    return launch_attention<Shape>(tree_attention_wgmma_kernel<Shape, Element, Stored>, plan, args, workspace,
                                   stream);
  });
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
