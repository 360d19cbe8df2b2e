// tree_attention() for trees of more than 16 packed rows on Hopper: the same function, with wgmma.
#pragma once

#include "../block/tree_attention_wgmma_block.cuh"
#include "../detail/host_device.cuh"
#include "../thread/async_copy.cuh"
#include "../thread/mbarrier.cuh"
#include "../warp/wgmma.cuh"
#include "launch.cuh"
#include "tree_attention.cuh"

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

/// Calls f(shape) with the variant of so many rows.
template <int kHead, class F>
auto with_wgmma_shape(int rows, F f) {
  using Shapes = WgmmaShapes<kHead>;
  if (rows <= 64) return f(typename Shapes::Rows64{});
  return f(typename Shapes::Rows128{});
}

/// As fill_plan(), for the variants above.
inline bool fill_wgmma_plan(TreeAttentionPlan* plan, const TreeAttentionCapacity& c, int head_size, int slots,
                            bool clusters) {
  if (c.max_nodes < 1 || c.kv_heads < 1 || c.query_heads < 1) return false;
  const std::int64_t rows = static_cast<std::int64_t>(c.max_nodes) * (c.query_heads / c.kv_heads);
  return fill_plan(plan, c, head_size, slots, clusters, rows <= 64 ? 64 : 128);
}

#ifdef __CUDACC__

/// What the body asks of the device.
struct DeviceHopper : DeviceCopies, DeviceBarriers, DeviceWarpgroup {};

template <class Shape, class Element>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    tree_attention_wgmma_kernel(const __grid_constant__ TreeAttentionLaunch<Element> launch) {
#ifdef SPECULA_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char wgmma_memory[];
  // Aligned here and not by a declaration, which is a wish.
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

/// A plan for tree_attention_wgmma(), as make_tree_attention_plan(): workspace_bytes() says what it needs.
/// Worth it from 17 packed rows (max_nodes * Hq / Hkv) on; right for fewer, too. Outside of captures. Errors:
/// cudaErrorNotSupported where the running program has no code for sm_90a or the device is another one;
/// cudaErrorInvalidValue where a capacity is out of range; else what the driver says.
template <class Element, int kHead>
cudaError_t make_tree_attention_wgmma_plan(TreeAttentionPlan* plan, const TreeAttentionCapacity& capacity,
                                           int device) {
  static_assert(kHead == 64 || kHead == 128, "heads of 64 or 128");
  using namespace detail;
  DeviceLimits limits;
  const cudaError_t error = device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  TreeAttentionPlan out;
  if (!fill_wgmma_plan(&out, capacity, kHead, 1, false)) return cudaErrorInvalidValue;
  return with_wgmma_shape<kHead>(out.rows, [&](auto shape) {
    using Shape = decltype(shape);
    const auto kernel = tree_attention_wgmma_kernel<Shape, Element>;
    if (limits.version != 90) return cudaErrorNotSupported;
    cudaFuncAttributes attributes{};
    cudaError_t e = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction) {
      cudaGetLastError();
      return cudaErrorNotSupported;
    }
    if (e != cudaSuccess) return e;
    // Compiled for anything but sm_90a the kernel is empty. And a block that is launched with fewer registers
    // than its roles take would wait for them for ever.
    constexpr int kNeeded =
        Shape::kConsumers * Shape::kConsumerRegisters + Shape::kProducers * Shape::kProducerRegisters;
    if (attributes.numRegs * Shape::kThreads < kNeeded || Shape::kSharedBytes > limits.shared_bytes)
      return cudaErrorNotSupported;
    e = prepare(kernel, Shape::kSharedBytes, 1);
    if (e == cudaSuccess)
      e = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
    int places = 1, in_clusters = 1;
    if (e == cudaSuccess) e = places_of<Shape>(kernel, 1, limits, &places);
    if (e != cudaSuccess) return e;
    if (places_of<Shape>(kernel, kMostCluster, limits, &in_clusters) != cudaSuccess) {
      cudaGetLastError();  // a slice of a device may hold no such cluster
      in_clusters = 0;
    }
    const bool clusters = in_clusters >= 0.9 * places;  // else too many multiprocessors would be left out
    if (!fill_wgmma_plan(&out, capacity, kHead, clusters ? in_clusters : places, clusters))
      return cudaErrorInvalidValue;
    out.threads = Shape::kThreads;
    out.shared_bytes = Shape::kSharedBytes;
    *plan = out;
    return cudaSuccess;
  });
}

/// As tree_attention(), in every argument, with a plan of make_tree_attention_wgmma_plan(). Results differ
/// from its by rounding alone. Cost: one read of K and V for every 64 or 128 packed rows; one launch.
template <class Element, int kHead>
cudaError_t tree_attention_wgmma(const TreeAttentionPlan& plan, const TreeAttentionArgs<Element>& args,
                                 void* workspace, cudaStream_t stream) {
  using namespace detail;
  if (plan.head_size != kHead || !valid_args(plan, args, workspace)) return cudaErrorInvalidValue;
  const TreeAttentionLaunch<Element> parameters = make_launch(plan, args, workspace);
  const int clusters = static_cast<int>(units_of(plan) * (plan.splits / plan.cluster));
  return with_wgmma_shape<kHead>(plan.rows, [&](auto shape) {
    using Shape = decltype(shape);
    // A plan of tree_attention() knows nothing of what runs here.
    if (plan.rows != Shape::kRows || plan.shared_bytes != Shape::kSharedBytes) return cudaErrorInvalidValue;
    return launch(tree_attention_wgmma_kernel<Shape, Element>, clusters, plan.cluster, Shape::kThreads,
                  static_cast<std::size_t>(Shape::kSharedBytes), stream, parameters);
  });
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
