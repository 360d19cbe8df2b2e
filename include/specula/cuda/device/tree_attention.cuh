// Attention of proposals over cache and tree: every query sees its sequence's committed tokens and, in the
// tree, itself and its ancestors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../block/tree_attention_block.cuh"
#include "../detail/host_device.cuh"
#include "../thread/async_copy.cuh"
#include "launch.cuh"

namespace specula {
namespace cuda {

/// What the host knows of the batches to come; everything else is device arrays, so that one captured graph
/// serves every round.
struct TreeAttentionCapacity {
  int sequences = 1;    // B: exactly so many each time, of which some may have no nodes
  int max_nodes = 64;   // of a tree, the root included; further ones are not computed
  int query_heads = 0;  // Hq, a multiple of kv_heads
  int kv_heads = 0;     // Hkv
  int max_tokens = 0;   // committed ones of a sequence; more are right too, but not split further
  int splits = 0;       // of a sequence's keys at most; 0: as many as fill the device
  /// Splits have a fixed length: a sequence's result then has the same bits whatever batch and capacities
  /// are.
  bool batch_invariant = false;
};

/// How a batch is computed.
struct TreeAttentionPlan {
  TreeAttentionCapacity capacity;
  int head_size = 0;            // D
  int rows = 0, row_tiles = 0;  // packed rows (node, head of the group) of a block; blocks for all of them
  int splits = 1, cluster = 1;  // splits: a multiple of the blocks of a cluster
  int fixed_tiles = 0, least_tiles = 1;  // tiles of 64 keys of a split
  int threads = 0;
  std::size_t shared_bytes = 0;
};

namespace detail {

constexpr int kInvariantTiles = 32;  // of a split: 2,048 keys
constexpr int kLeastTiles = 4;       // of a split, where its length is free
constexpr int kMostCluster = 8;      // what every device with clusters can do

/// The variants. Those of up to 32 rows split a tile's keys in the same way, so they give the same bits.
/// Rings have the same size whatever is stored in them: as many bytes are under way.
template <int kHead, int kBytes>
struct AttentionShapes {
  static constexpr int kStages = (kHead == 128 ? 3 : 4) * 2 / kBytes;
  using Rows16 = AttentionShape<kHead, 1, 4, kStages, kBytes>;
  using Rows32 = AttentionShape<kHead, 2, 4, kStages, kBytes>;
  using Rows64 = AttentionShape<kHead, 4, 2, kStages, kBytes>;
  using Rows128 = AttentionShape<kHead, 8, 1, kStages, kBytes>;
};

/// Calls f(shape) with the variant of so many rows.
template <int kHead, class Stored = BFloat16, class F>
auto with_shape(int rows, F f) {
  using Shapes = AttentionShapes<kHead, sizeof(Stored)>;
  if (rows <= 16) return f(typename Shapes::Rows16{});
  if (rows <= 32) return f(typename Shapes::Rows32{});
  if (rows <= 64) return f(typename Shapes::Rows64{});
  return f(typename Shapes::Rows128{});
}

/// Rows of the variant for `rows` packed rows of a KV head.
inline int choose_rows(int rows, bool batch_invariant) {
  if (rows <= 16) return 16;
  if (rows <= 32 || batch_invariant) return 32;
  return rows <= 64 ? 64 : 128;
}

/// The fewest splits that keep the device nearly as busy as the best number does: `units` blocks a split, of
/// which `slots` run at once. Splits beyond one are multiples of the cluster that is made of them.
inline int choose_splits(std::int64_t units, int slots, int most, bool clusters) {
  double best = 0;
  const auto used = [&](int splits) {
    const std::int64_t blocks = units * splits, waves = ceil_div<std::int64_t>(blocks, slots);
    return static_cast<double>(blocks) / static_cast<double>(waves * slots);
  };
  const auto next = [&](int s) { return !clusters ? s + 1 : s < kMostCluster ? 2 * s : s + kMostCluster; };
  for (int s = 1; s <= most; s = next(s)) best = used(s) > best ? used(s) : best;
  for (int s = 1; s <= most; s = next(s))
    if (used(s) >= 0.85 * best) return s;
  return 1;
}

/// Blocks of a cluster for so many splits.
inline int choose_cluster(int splits, bool clusters) {
  int cluster = 1;
  while (clusters && cluster < kMostCluster && cluster < splits) cluster *= 2;
  return cluster;
}

/// The plan but for what the device says of the variant: `slots` blocks run at once. `block_rows`: of the
/// variant, where it is not chosen here. False for capacities that make no sense.
inline bool fill_plan(TreeAttentionPlan* plan, const TreeAttentionCapacity& c, int head_size, int slots,
                      bool clusters, int block_rows = 0) {
  if (c.sequences < 1 || c.max_nodes < 1 || c.kv_heads < 1 || c.query_heads < c.kv_heads ||
      c.query_heads % c.kv_heads != 0 || c.max_tokens < 0 || c.splits < 0 || slots < 1)
    return false;
  const std::int64_t rows = static_cast<std::int64_t>(c.max_nodes) * (c.query_heads / c.kv_heads);
  const std::int64_t keys = static_cast<std::int64_t>(c.max_tokens) + c.max_nodes;
  const int tiles = static_cast<int>(ceil_div<std::int64_t>(keys, kTileKeys));
  if (rows > 0x7FFFFFFF / 2) return false;
  plan->capacity = c;
  plan->head_size = head_size;
  plan->rows = block_rows > 0 ? block_rows : choose_rows(static_cast<int>(rows), c.batch_invariant);
  plan->row_tiles = static_cast<int>(ceil_div<std::int64_t>(rows, plan->rows));
  plan->fixed_tiles = c.batch_invariant ? kInvariantTiles : 0;
  plan->least_tiles = kLeastTiles;
  // A window may begin inside a tile: one more.
  const int most = c.batch_invariant ? ceil_div(tiles + 1, kInvariantTiles) : larger(1, tiles / kLeastTiles);
  const std::int64_t units = static_cast<std::int64_t>(c.sequences) * c.kv_heads * plan->row_tiles;
  if (c.batch_invariant)
    plan->splits = most;
  else
    plan->splits = c.splits > 0 ? smaller(c.splits, most) : choose_splits(units, slots, most, clusters);
  plan->cluster = choose_cluster(plan->splits, clusters);
  plan->splits = ceil_div(plan->splits, plan->cluster) * plan->cluster;
  return units * plan->splits <= 0x7FFFFFFF;
}

inline std::int64_t units_of(const TreeAttentionPlan& plan) {
  return static_cast<std::int64_t>(plan.capacity.sequences) * plan.capacity.kv_heads * plan.row_tiles;
}
inline std::size_t counter_bytes(const TreeAttentionPlan& plan) {
  const auto bytes = static_cast<std::size_t>(units_of(plan) * plan.cluster) * sizeof(std::uint32_t);
  return ceil_div<std::size_t>(bytes, 256) * 256;
}

}  // namespace detail

/// Bytes of device memory that tree_attention() wants, 256-byte aligned: partial results of splits beyond a
/// cluster's; 0 if there are none. Zero them once; every launch leaves its counters as it found them.
inline std::size_t workspace_bytes(const TreeAttentionPlan& plan) {
  if (plan.splits == plan.cluster) return 0;
  return detail::counter_bytes(plan) + static_cast<std::size_t>(detail::units_of(plan)) *
                                           static_cast<std::size_t>(plan.splits / plan.cluster * plan.rows) *
                                           static_cast<std::size_t>(plan.head_size + 4) * sizeof(float);
}

namespace detail {

template <class Element, class Stored>
TreeAttentionLaunch<Element, Stored> make_launch(const TreeAttentionPlan& plan,
                                                 const TreeAttentionArgs<Element, Stored>& args,
                                                 void* workspace) {
  TreeAttentionLaunch<Element, Stored> out{};
  out.args = args;
  out.score = ScoreMap(args.scale, args.softcap);
  out.page_size = Divisor(static_cast<std::uint32_t>(args.kv.page_size));
  out.query_heads = plan.capacity.query_heads;
  out.kv_heads = plan.capacity.kv_heads;
  out.row_tiles = plan.row_tiles;
  out.splits = plan.splits;
  out.fixed_tiles = plan.fixed_tiles;
  out.least_tiles = plan.least_tiles;
  if (workspace) {
    out.counters = static_cast<std::uint32_t*>(workspace);
    out.parts = reinterpret_cast<float*>(static_cast<unsigned char*>(workspace) + counter_bytes(plan));
  }
  return out;
}

/// Whether the host sees nothing wrong with the arguments.
template <class Element, class Stored>
bool valid_args(const TreeAttentionPlan& plan, const TreeAttentionArgs<Element, Stored>& args,
                const void* workspace) {
  const auto to16 = [](const void* p) { return p && reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool arrays = to16(args.q) && args.q_stride % 8 == 0 && to16(args.out) && args.out_stride % 8 == 0 &&
                      args.begin && args.kv.length && args.kv.k.data && args.kv.v.data &&
                      aligned(args.kv.k) && aligned(args.kv.v);
  const bool paged = args.kv.page_size >= 1 && args.kv.max_pages >= 0 && args.kv.page_count >= 1 &&
                     (!args.kv.indptr || (args.kv.k.pages && args.kv.v.pages));
  const bool views = args.words >= 0 && (args.words == 0 || args.mask) && args.window >= 0 &&
                     (args.window == 0 || args.position || args.depth) && args.softcap >= 0;
  const bool work =
      workspace_bytes(plan) == 0 || (workspace && reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0);
  return arrays && paged && views && work;
}

#ifdef __CUDACC__

/// Blocks of `kernel` that run at once, in clusters of `cluster`: fewer than without where the processors of
/// a GPC are no multiple of it, and perhaps none.
template <class Shape, class Kernel>
cudaError_t places_of(Kernel* kernel, int cluster, const DeviceLimits& limits, int* places) {
  int count = 0;
  cudaError_t error;
  if (cluster > 1) {
    const Launch how(1, cluster, Shape::kThreads, Shape::kSharedBytes, nullptr);
    error = cudaOccupancyMaxActiveClusters(&count, kernel, &how.config);
  } else {
    error =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, Shape::kThreads, Shape::kSharedBytes);
  }
  *places = count * (cluster > 1 ? cluster : limits.processors);
  return error;
}

/// The plan of a variant; `plan` says for how many rows. Clusters are used where `least` of the blocks that
/// run at once without them do so with them. Outside of captures. Errors: cudaErrorInvalidValue where a
/// capacity is out of range; else what the driver says.
template <class Shape, class Kernel>
cudaError_t finish_plan(TreeAttentionPlan* plan, Kernel* kernel, const DeviceLimits& limits, double least) {
  bool clusters = false;
  cudaError_t error = has_clusters(kernel, &clusters);
  if (error == cudaSuccess) error = prepare(kernel, Shape::kSharedBytes, 1);
  if (error == cudaSuccess)  // as many blocks at once as fit
    error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  int places = 0, in_clusters = 0;
  if (error == cudaSuccess) error = places_of<Shape>(kernel, 1, limits, &places);
  if (error != cudaSuccess) return error;
  if (clusters && limits.version >= 90 &&
      places_of<Shape>(kernel, kMostCluster, limits, &in_clusters) != cudaSuccess) {
    cudaGetLastError();  // a slice of a device may hold no such cluster
    in_clusters = 0;
  }
  clusters = in_clusters > 0 && in_clusters >= least * places;
  if (!fill_plan(plan, plan->capacity, plan->head_size, larger(1, clusters ? in_clusters : places), clusters,
                 plan->rows))
    return cudaErrorInvalidValue;
  plan->threads = Shape::kThreads;
  plan->shared_bytes = Shape::kSharedBytes;
  return cudaSuccess;
}

/// Launches a variant, if it is the plan's.
template <class Shape, class Kernel, class Args>
cudaError_t launch_attention(Kernel* kernel, const TreeAttentionPlan& plan, const Args& args, void* workspace,
                             cudaStream_t stream) {
  if (plan.head_size != Shape::kHead || plan.rows != Shape::kRows || plan.threads != Shape::kThreads ||
      plan.shared_bytes != Shape::kSharedBytes || !valid_args(plan, args, workspace))
    return cudaErrorInvalidValue;
  const int clusters = static_cast<int>(units_of(plan) * (plan.splits / plan.cluster));
  return launch(kernel, clusters, plan.cluster, Shape::kThreads, Shape::kSharedBytes, stream,
                make_launch(plan, args, workspace));
}

template <class Shape, class Element, class Stored = Element>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kThreads == 128 ? 2 : 1)
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

/// A plan for batches of up to the given sizes, for elements BFloat16 or Half, a cache of the same or of
/// Float8E4M3, and heads of kHead = 64 or 128. Outside of captures. Errors: cudaErrorInvalidValue where a
/// capacity is out of range or a block has not the shared memory that it needs (100 KB); else what the driver
/// says.
template <class Element, int kHead, class Stored = Element>
cudaError_t make_tree_attention_plan(TreeAttentionPlan* plan, const TreeAttentionCapacity& capacity,
                                     int device) {
  static_assert(kHead == 64 || kHead == 128, "heads of 64 or 128");
  using namespace detail;
  DeviceLimits limits;
  cudaError_t error = device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  TreeAttentionPlan out;
  if (!fill_plan(&out, capacity, kHead, 1, false)) return cudaErrorInvalidValue;
  error = with_shape<kHead, Stored>(out.rows, [&](auto shape) {
    using Shape = decltype(shape);
    if (Shape::kSharedBytes > limits.shared_bytes) return cudaErrorInvalidValue;
    // In all variants alike, for those of 16 and of 32 rows must merge in the same order.
    return finish_plan<Shape>(&out, tree_attention_kernel<Shape, Element, Stored>, limits, 0);
  });
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// out = softmax(scale * Q K^T) V over what each node sees, and its log-sum-exp: all committed tokens of the
/// sequence (with a window those near enough by position), and of the tree itself and its ancestors. With
/// `words` 0 there is no tail, and this is cross attention over the cache, as GLIDE's. A query that sees
/// nothing gets zeros and -infinity. Products in Element, sums in float; weights are rounded to Element. What
/// is Stored as Float8E4M3 is widened to Element without loss, and k_scale and v_scale act on scores and
/// outputs, in float; its codes of NaN, which no cache should hold, count as 480.
/// Nothing beyond a sequence's last slot is read, and what lies there does not matter; K and V of all of its
/// slots must be finite. Nodes beyond the plan's are left out, slots beyond the pages are not seen. Cost: one
/// read of K and V for every 16 to 128 packed rows (max_nodes * Hq / Hkv); one launch; nothing is allocated.
/// Errors: cudaErrorInvalidValue for a null or misaligned array, or an option out of range; else what the
/// driver says.
template <class Element, int kHead, class Stored = Element>
cudaError_t tree_attention(const TreeAttentionPlan& plan, const TreeAttentionArgs<Element, Stored>& args,
                           void* workspace, cudaStream_t stream) {
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
