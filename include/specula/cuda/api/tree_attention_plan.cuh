// SPDX-License-Identifier: MIT
// Launch configuration of tree attention: split choice, workspace sizes and argument checks, shared by its
// two kernels (tree_attention_mma.cuh, tree_attention_wgmma.cuh).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/attention.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/attention/tree_attention_block.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

/// How a batch is computed, whatever its elements are.
struct TreeAttentionGeometry {
  TreeAttentionCapacity capacity;  ///< as given
  int device = 0;                  ///< the current one when the plan was made, and when it is launched
  bool wgmma = false;              ///< which kernel
  int head_size = 0;               ///< D
  int rows = 0,                    ///< packed rows (node, head of the group) of a block
      row_tiles = 0;               ///< blocks for all of them
  int splits = 1,                  ///< per sequence, a multiple of `cluster`
      cluster = 1;                 ///< blocks of a cluster
  int fixed_tiles = 0,             ///< tiles of 64 keys of a split, if fixed; else 0
      least_tiles = 1;             ///< tiles of 64 keys of a split, at least
  int threads = 0;                 ///< per block
  std::size_t shared_bytes = 0;    ///< of a block
};

/// The same for elements, heads and a cache of these types, which no other launch takes.
template <class Element, int kHead, class Stored = Element>
struct TreeAttentionPlan : TreeAttentionGeometry {};

namespace detail {

constexpr int kInvariantTiles = 32;  // of a split: 2,048 keys
constexpr int kMinTiles = 4;         // of a split, where its length is free
constexpr int kMaxCluster = 8;       // portable cluster size

/// Rows of the variant for `rows` packed rows of a KV head.
inline int choose_rows(int rows, bool batch_invariant) {
  if (rows <= 16) return 16;
  if (rows <= 32 || batch_invariant) return 32;
  return rows <= 64 ? 64 : 128;
}

/// Whether wgmma is faster than mma.sync on a device that has it. It multiplies 64 rows at once: up to 32
/// rows most of that is wasted. On an H100 the best of mma.sync took 63 to 74 us and that of wgmma 67 to 70
/// us for 134 MB and 32 rows, but 75 to 87 us and 69 to 74 us for 64 rows.
inline bool wants_wgmma(const TreeAttentionCapacity& c) {
  return c.kv_heads > 0 && static_cast<std::int64_t>(c.max_nodes) * (c.query_heads / c.kv_heads) > 32;
}

/// Blocks of a variant that run on a device at once, in clusters of 1, 2, 4 and 8; 0 if none can.
struct AttentionPlaces {
  int of[4] = {1, 0, 0, 0};
};

/// A number of splits, and the size of their clusters: a power of two that divides it.
struct SplitCut {
  int splits, cluster;
};

/// Estimated time of a launch, in units of a block's time for a tile of keys: each wave of blocks costs its
/// tiles and about 16 more for its begin and end; then parts are merged, if they are in several clusters. A
/// wave that is not full costs as much as a full one, and clusters leave multiprocessors idle, since a
/// cluster is within one GPC. `units`: tiles of rows of all KV heads and sequences. It gives the order of all
/// pairs that were measured on an H100 (tests/cuda/api/tree_attention_plan.cpp). The cost of merging was
/// not measured: two tiles, and the rows of parts read per tile's time, are estimates.
inline double cut_cost(SplitCut cut, std::int64_t units, int tiles, int rows, const AttentionPlaces& places) {
  constexpr double kOfWave = 16, kOfMerge = 2, kRowsOfTile = 128;
  int log = 0;
  while (1 << log < cut.cluster) ++log;
  if (places.of[log] < 1) return std::numeric_limits<double>::infinity();
  const auto waves = static_cast<double>(ceil_div<std::int64_t>(units * cut.splits, places.of[log]));
  const int clusters = cut.splits / cut.cluster;
  const double merge = clusters > 1 ? kOfMerge + clusters * rows / (kRowsOfTile * cut.cluster) : 0;
  return waves * (ceil_div(tiles, cut.splits) + kOfWave) + merge;
}

/// The cheapest cut of `least` to `most` splits; ties to the largest clusters, then the fewest splits.
inline SplitCut choose_cut(std::int64_t units, int tiles, int rows, int least, int most,
                           const AttentionPlaces& places) {
  SplitCut best{least, 1};
  double lowest = std::numeric_limits<double>::infinity();
  for (int cluster = kMaxCluster; cluster >= 1; cluster /= 2)
    for (int s = ceil_div(least, cluster) * cluster; s <= most; s += cluster) {
      const double cost = cut_cost({s, cluster}, units, tiles, rows, places);
      if (cost < lowest) {
        lowest = cost;
        best = {s, cluster};
      }
    }
  return best;
}

/// Blocks of a cluster for `splits` splits of a fixed length, independent of the batch.
inline int choose_cluster(int splits, bool clusters) {
  int cluster = 1;
  while (clusters && cluster < kMaxCluster && cluster < splits) cluster *= 2;
  return cluster;
}

/// The plan but for what the device says of the variant. `block_rows`: of the variant, where it is not chosen
/// here. False for capacities that make no sense.
inline bool fill_plan(TreeAttentionGeometry* plan, const TreeAttentionCapacity& c, int head_size,
                      const AttentionPlaces& places, int block_rows = 0) {
  if (c.sequences < 1 || c.max_nodes < 1 || c.kv_heads < 1 || c.query_heads < c.kv_heads ||
      c.query_heads % c.kv_heads != 0 || c.max_tokens < 0 || c.splits < 0 || places.of[0] < 1)
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
  plan->least_tiles = kMinTiles;
  // A window may begin inside a tile: one more.
  const int most = c.batch_invariant ? ceil_div(tiles + 1, kInvariantTiles) : larger(1, tiles / kMinTiles);
  const std::int64_t units = static_cast<std::int64_t>(c.sequences) * c.kv_heads * plan->row_tiles;
  if (c.batch_invariant) {
    plan->cluster = choose_cluster(most, places.of[3] > 0);
    plan->splits = ceil_div(most, plan->cluster) * plan->cluster;
  } else {
    const int wanted = smaller(c.splits, most);
    const SplitCut cut =
        choose_cut(units, tiles, plan->rows, larger(1, wanted), wanted > 0 ? wanted : most, places);
    plan->splits = cut.splits;
    plan->cluster = cut.cluster;
  }
  return units * plan->splits <= 0x7FFFFFFF;
}

inline std::int64_t units_of(const TreeAttentionGeometry& plan) {
  return static_cast<std::int64_t>(plan.capacity.sequences) * plan.capacity.kv_heads * plan.row_tiles;
}
/// Whether parts of different clusters have to be merged in device memory.
inline bool has_parts(const TreeAttentionGeometry& plan) { return plan.splits > plan.cluster; }

}  // namespace detail

/// Bytes of partial results that a launch leaves in device memory; 0 if one cluster has all splits of a row.
inline std::size_t part_bytes(const TreeAttentionGeometry& plan) {
  if (!detail::has_parts(plan)) return 0;
  return static_cast<std::size_t>(detail::units_of(plan)) *
         static_cast<std::size_t>(plan.splits / plan.cluster * plan.rows) *
         static_cast<std::size_t>(plan.head_size + 4) * sizeof(float);
}
/// Bytes of counters, of the same launches.
inline std::size_t counter_bytes(const TreeAttentionGeometry& plan) {
  if (!detail::has_parts(plan)) return 0;
  return static_cast<std::size_t>(detail::units_of(plan) * plan.cluster) * sizeof(std::uint32_t);
}

namespace detail {

template <class Element, class Stored>
TreeAttentionLaunch<Element, Stored> make_launch(const TreeAttentionGeometry& plan,
                                                 const TreeAttentionArgs<Element, Stored>& args,
                                                 const Workspace& workspace) {
  TreeAttentionLaunch<Element, Stored> out{};
  out.args = args;
  out.score = ScoreMap(args.scale, args.softcap);
  out.page_size = Divisor(static_cast<std::uint32_t>(args.kv.page_size));
  out.max_nodes = plan.capacity.max_nodes;
  out.query_heads = plan.capacity.query_heads;
  const auto by = [](int n) { return Divisor(static_cast<std::uint32_t>(n)); };
  out.kv_heads = by(plan.capacity.kv_heads);
  out.per_head = by(plan.capacity.query_heads / plan.capacity.kv_heads);
  out.row_tiles = by(plan.row_tiles);
  out.groups = by(plan.splits / plan.cluster);
  out.splits = plan.splits;
  out.fixed_tiles = plan.fixed_tiles;
  out.least_tiles = plan.least_tiles;
  out.counters = workspace.counters;
  out.parts = static_cast<float*>(workspace.parts);
  return out;
}

/// Whether the plan is one of this variant.
template <class Shape>
bool is_of_shape(const TreeAttentionGeometry& plan) {
  return plan.wgmma == Shape::kHasRoles && plan.head_size == Shape::kHead && plan.rows == Shape::kRows &&
         plan.threads == Shape::kThreads && plan.shared_bytes == Shape::kSharedBytes;
}

/// Whether rows of a cache do not overlap: among the indices that take more than one value, the strides are
/// at least a row.
template <class Stored>
bool rows_apart(const PagedRows<Stored>& rows, const PagedKv<Stored>& kv, const TreeAttentionGeometry& plan) {
  const std::int64_t row = plan.head_size;
  const bool one_page = plan.capacity.sequences == 1 && !kv.indptr && kv.max_pages == 0;
  return (kv.page_size == 1 || rows.token_stride >= row) &&
         (plan.capacity.kv_heads == 1 || rows.head_stride >= row) && (one_page || rows.page_stride >= row);
}

/// Host-side checks of the arguments.
template <class Element, class Stored>
bool valid_args(const TreeAttentionGeometry& plan, const TreeAttentionArgs<Element, Stored>& args,
                const Workspace& workspace) {
  const auto to16 = [](const void* p) { return p && reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const auto strided = [&](std::int64_t stride) {
    return stride % 8 == 0 && stride >= static_cast<std::int64_t>(plan.capacity.query_heads) * plan.head_size;
  };
  const bool arrays = to16(args.q) && strided(args.q_stride) && to16(args.out) && strided(args.out_stride) &&
                      args.begin && args.kv.length && args.kv.k.data && args.kv.v.data &&
                      aligned(args.kv.k) && aligned(args.kv.v);
  const bool words = !any_misaligned(args.begin, args.mask, args.lse, args.status, args.position, args.depth,
                                     args.k_scale, args.v_scale, args.kv.length, args.kv.indptr,
                                     args.kv.k.pages, args.kv.v.pages, args.sequence_count, args.earlier);
  const bool paged = args.kv.page_size >= 1 && args.kv.max_pages >= 0 && args.kv.page_count >= 1 &&
                     (!args.kv.indptr || (args.kv.k.pages && args.kv.v.pages)) &&
                     rows_apart(args.kv.k, args.kv, plan) && rows_apart(args.kv.v, args.kv, plan);
  const bool mask =
      args.words == 0 ||
      (args.words > 0 && args.mask && 64 * static_cast<std::int64_t>(args.words) >= plan.capacity.max_nodes);
  const bool views = args.window >= 0 &&
                     (args.window == 0 || ((args.position || args.depth) && !args.earlier)) &&
                     args.softcap >= 0;
  return arrays && words && paged && mask && views &&
         is_room(workspace, part_bytes(plan), counter_bytes(plan));
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

/// The plan of a variant; `plan` says for how many rows. Outside of captures. Errors: cudaErrorInvalidValue
/// where a capacity is out of range; else the driver's error.
template <class Shape, class Kernel>
cudaError_t finish_plan(TreeAttentionGeometry* plan, Kernel* kernel, const DeviceLimits& limits) {
  bool clusters = false;
  cudaError_t error = has_clusters(kernel, &clusters);
  if (error == cudaSuccess) error = prepare(kernel, Shape::kSharedBytes, 1);
  if (error == cudaSuccess)  // as many blocks at once as fit
    error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  AttentionPlaces places;
  if (error == cudaSuccess) error = places_of<Shape>(kernel, 1, limits, &places.of[0]);
  if (error != cudaSuccess) return error;
  for (int log = 1; clusters && limits.version >= 90 && log < 4; ++log)
    if (places_of<Shape>(kernel, 1 << log, limits, &places.of[log]) != cudaSuccess) {
      cudaGetLastError();  // a slice of a device may hold no such cluster
      places.of[log] = 0;
    }
  if (!fill_plan(plan, plan->capacity, plan->head_size, places, plan->rows)) return cudaErrorInvalidValue;
  plan->wgmma = Shape::kHasRoles;
  plan->threads = Shape::kThreads;
  plan->shared_bytes = Shape::kSharedBytes;
  return cudaSuccess;
}

/// A plan for `device`, written if all succeeds. fill(&plan) returns whether the capacity is in range;
/// finish(&plan, limits) prepares the kernel of the plan's variant. Errors: cudaErrorInvalidDevice unless
/// `device` is the current one; cudaErrorInvalidValue where fill() returns false; else those of finish().
template <int kHead, class Plan, class Fill, class Finish>
cudaError_t make_attention_plan(Plan* plan, int device, Fill fill, Finish finish) {
  static_assert(kHead == 64 || kHead == 128, "heads of 64 or 128");
  DeviceLimits limits;
  cudaError_t error = check_current(device);
  if (error == cudaSuccess) error = device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  Plan out;
  out.device = device;
  if (!fill(&out)) return cudaErrorInvalidValue;
  error = finish(&out, limits);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// Launches a variant, if it is the plan's.
template <class Shape, class Element, class Stored>
cudaError_t launch_attention(void (*kernel)(TreeAttentionLaunch<Element, Stored>),
                             const TreeAttentionGeometry& plan,
                             const TreeAttentionArgs<Element, Stored>& args, const Workspace& workspace,
                             cudaStream_t stream) {
  if (!is_of_shape<Shape>(plan) || !valid_args(plan, args, workspace)) return cudaErrorInvalidValue;
  const cudaError_t error = check_current(plan.device);
  if (error != cudaSuccess) return error;
  const int clusters = static_cast<int>(units_of(plan) * (plan.splits / plan.cluster));
  Launch how(clusters, plan.cluster, Shape::kThreads, Shape::kSharedBytes, stream);
  // Roles reach the cluster's barrier from different places, which is defined for the cluster's barrier
  // alone.
  if (Shape::kHasRoles) how.config.numAttrs = 1;
  return cudaLaunchKernelEx(&how.config, kernel, make_launch(plan, args, workspace));
}

#endif  // __CUDACC__

}  // namespace detail

}  // namespace cuda
}  // namespace specula
