// SPDX-License-Identifier: MIT
// Tree attention by mma.sync: for sm_80 and later, fastest up to 32 packed rows.
//
// Work: one block has one split of the keys, for one tile of packed rows of a KV head.
// Traffic: K and V pass through a ring of tiles of 64 keys in shared memory; sums of outputs are in
// registers. Queries are too, except for 32 rows of heads of 128: those are in shared memory.
// Forms: 16, 32, 64 or 128 rows by choose_rows(); heads of 64 or 128; a cache of Element or Float8E4M3.
// choose_cut() splits the keys; above 32 packed rows wants_wgmma() prefers the other kernel.
// Reference: doubles in tests/support/attention_cases.hpp; tests/cuda/api/tree_attention_mma.cpp;
// bench/cuda/attention_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/tree_attention.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program attention).
#pragma once

#include "specula/cuda/api/tree_attention_plan.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/tree_attention_block.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/primitives/thread/async_copy.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The variants. Those of up to 32 rows split a tile's keys in the same way, so they give the same bits.
/// Rings have the same size for every stored type, so the same number of bytes is in flight.
template <int kHead, int kBytes>
struct AttentionShapes {
  static constexpr int kStages = (kHead == 128 ? 3 : 4) * 2 / kBytes;
  using Rows16 = AttentionShape<kHead, 1, 4, kStages, kBytes>;
  using Rows32 = AttentionShape<kHead, 2, 4, kStages, kBytes>;
  using Rows64 = AttentionShape<kHead, 4, 2, kStages, kBytes>;
  using Rows128 = AttentionShape<kHead, 8, 1, kStages, kBytes>;
};

/// Calls f(shape) with the variant of `rows` rows.
template <int kHead, class Stored = BFloat16, class F>
auto with_shape(int rows, F f) {
  using Shapes = AttentionShapes<kHead, sizeof(Stored)>;
  if (rows <= 16) return f(typename Shapes::Rows16{});
  if (rows <= 32) return f(typename Shapes::Rows32{});
  if (rows <= 64) return f(typename Shapes::Rows64{});
  return f(typename Shapes::Rows128{});
}

/// Rows of a variant that fits in the shared memory of a block: on sm_86, 89 and 120 that of 32 rows of wide
/// heads does not. That of 16 gives the same bits, with a second read of K and V from the L2 cache.
template <int kHead, class Stored>
int rows_that_fit(int rows, int shared_bytes) {
  using Shapes = AttentionShapes<kHead, sizeof(Stored)>;
  return rows == 32 && Shapes::Rows32::kSharedBytes > shared_bytes ? 16 : rows;
}

#ifdef __CUDACC__

template <class Shape, class Element, class Stored = Element>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    tree_attention_kernel(const __grid_constant__ TreeAttentionLaunch<Element, Stored> launch) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const DeviceCluster cluster;
  DeviceCopies copies;
  TreeAttentionBlock<Shape, DeviceCluster, Element, Stored>(
      cluster, launch, static_cast<int>(blockIdx.x) / cluster.size(), shared_memory)
      .run(copies);
}

#endif  // __CUDACC__

}  // namespace detail

#ifdef __CUDACC__

/// A plan for batches of up to the given sizes, for elements BFloat16 or Half, a cache of the same type or of
/// Float8E4M3, and heads of kHead = 64 or 128. Outside of captures. Errors: cudaErrorInvalidValue where a
/// capacity is out of range or a block has less shared memory than needed (100 KB); cudaErrorInvalidDevice
/// where `device` is not the current one; else the driver's error.
template <class Element, int kHead, class Stored = Element>
cudaError_t make_tree_attention_mma_plan(TreeAttentionPlan<Element, kHead, Stored>* plan,
                                         const TreeAttentionCapacity& capacity, int device) {
  using namespace detail;
  using Plan = TreeAttentionPlan<Element, kHead, Stored>;
  return make_attention_plan<kHead>(
      plan, device, [&](Plan* out) { return fill_plan(out, capacity, kHead, AttentionPlaces{}); },
      [](Plan* out, const DeviceLimits& limits) {
        out->rows = rows_that_fit<kHead, Stored>(out->rows, limits.shared_bytes);
        return with_shape<kHead, Stored>(out->rows, [&](auto shape) {
          using Shape = decltype(shape);
          if (Shape::kSharedBytes > limits.shared_bytes) return cudaErrorInvalidValue;
          return finish_plan<Shape>(out, tree_attention_kernel<Shape, Element, Stored>, limits);
        });
      });
}

/// out = softmax(scale * Q K^T) V over each node's visible keys, and its log-sum-exp: all committed tokens of
/// the sequence (with a window those near enough by position), the node and its ancestors. With `words` 0
/// there is no tail, and this is cross attention over the cache, as GLIDE's. A query without visible keys
/// gets zeros and -infinity. Products in Element, sums in float; weights are rounded to Element. Float8E4M3
/// is widened to Element without loss, and k_scale and v_scale act on scores and outputs, in float; its codes
/// of NaN, which no cache should hold, count as 480.
/// Nothing after a sequence's last slot is read, and its content does not matter; K and V of all of its slots
/// must be finite. Nodes in excess of the plan's are left out, slots outside the pages are masked. Cost: one
/// read of K and V for every 16 to 128 packed rows (max_nodes * Hq / Hkv); one launch; nothing is allocated.
/// No output or workspace may overlap an input, and no input may change during the launch: threads that read
/// different values deadlock. Errors: cudaErrorInvalidValue for a null or misaligned array, a stride below a
/// row, `words` for fewer nodes than the plan's, a workspace that is too small, or an option out of range;
/// cudaErrorInvalidDevice where the plan's device is not the current one; else the driver's error.
/// @code
/// TreeAttentionPlan<BFloat16, 128> plan;  // workspace and arguments as in the example of tree_attention()
/// make_tree_attention_mma_plan(&plan, attention_capacity, device);
/// tree_attention_mma(plan, attention_args, workspace, stream);
/// @endcode
template <class Element, int kHead, class Stored = Element>
cudaError_t tree_attention_mma(const TreeAttentionPlan<Element, kHead, Stored>& plan,
                               const TreeAttentionArgs<Element, Stored>& args, const Workspace& workspace,
                               cudaStream_t stream) {
  using namespace detail;
  return with_shape<kHead, Stored>(plan.rows, [&](auto shape) {
    using Shape = decltype(shape);
    return launch_attention<Shape>(tree_attention_kernel<Shape, Element, Stored>, plan, args, workspace,
                                   stream);
  });
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
