// SPDX-License-Identifier: MIT
// EAGLE-2's dynamic draft tree on the device: expanded by confidence, pruned to the likeliest nodes.
//
// Work: a step has one cluster per row; the block that finishes a sequence's last row selects the next level.
// The rerank is build_tree_kernel (grown_trees.cuh).
// Traffic: a row passes through rings in shared memory; its best tokens go to the pool in the workspace.
// Forms: by element type. make_dynamic_tree_plan() plans level 0 (B rows) and later levels (B * K rows).
// Reference: shape/dynamic_tree.hpp; tests/cuda/api/grow_dynamic_tree.cpp; bench/cuda/growth_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/grow.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program growth).
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/api/scan_plan.cuh"
#include "specula/cuda/args/growth.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/grow/grown_trees.cuh"
#include "specula/cuda/detail/grow/top_k.cuh"
#include "specula/cuda/detail/primitives/block/last_block.cuh"
#include "specula/cuda/detail/primitives/block/shared_array.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

/// Launch configuration of growth, and the sizes of its outputs.
struct DynamicTreeSizes {
  int sequences = 0,                    ///< B
      top_k = 0,                        ///< K
      expansions = 0,                   ///< E
      vocab = 0;                        ///< V
  int pool = 0;                         ///< draft tokens to choose from: K * (1 + E * K)
  int width = 0;                        ///< nodes of GrownTrees: 1 + the smaller of total and pool
  int draft_words = 0;                  ///< mask_words(1 + E * K), of DraftLevels
  detail::ScanPlan root_scan,           ///< how rows after the roots are read
      scan;                             ///< and those after a level
  std::size_t rerank_shared_bytes = 0;  ///< of the kernel that chooses the proposal
};

/// The same, made for rows of Element. See make_dynamic_tree_plan().
template <class Element>
struct DynamicTreePlan : DynamicTreeSizes {};

namespace detail {

/// State of growth between its steps.
struct DynamicTreeWork {
  Pool pool;               // candidates, a row's K best tokens together: (B, K + E K K)
  std::int32_t* frontier;  // (E, B, K) candidate of each slot; -1: none
  Status* row_status;      // (B, K) of the level's rows
  std::int32_t* arrived;   // (B) rows of the level that are done; 0 between steps
  Status* status;          // (B)

  static std::size_t bytes(const DynamicTreeSizes& plan) {
    const auto slots = static_cast<std::size_t>(plan.sequences) * static_cast<std::size_t>(plan.top_k);
    return Pool::bytes(plan.sequences, plan.pool) +
           sizeof(std::int32_t) * (slots * static_cast<std::size_t>(plan.expansions + 1) +
                                   2 * static_cast<std::size_t>(plan.sequences));
  }
  static DynamicTreeWork at(void* memory, const DynamicTreeSizes& plan) {
    const auto slots = static_cast<std::size_t>(plan.sequences) * static_cast<std::size_t>(plan.top_k);
    DynamicTreeWork out;
    out.pool = Pool::at(memory, plan.sequences, plan.pool);
    out.frontier = reinterpret_cast<std::int32_t*>(static_cast<unsigned char*>(memory) +
                                                   Pool::bytes(plan.sequences, plan.pool));
    out.row_status =
        reinterpret_cast<Status*>(out.frontier + slots * static_cast<std::size_t>(plan.expansions));
    out.arrived = reinterpret_cast<std::int32_t*>(out.row_status + slots);
    out.status = reinterpret_cast<Status*>(out.arrived + plan.sequences);
    return out;
  }
};

template <class Element>
struct DynamicTreeArgs {
  DraftRows<Element> rows;
  Roots roots;
  DraftLevels out;
  DynamicTreeWork work;
  ScanSize scan;
  int sequences, top_k, expansions, draft_words, level;
};

/// One level of one sequence, processed by the block that finished the last of its rows.
template <class Block, class Element>
class DynamicTreeLevel {
 public:
  SPECULA_HD DynamicTreeLevel(Block block, const DynamicTreeArgs<Element>& args, int sequence)
      : block_(block),
        args_(args),
        sequence_(sequence),
        rows_(args.level == 0 ? 1 : args.top_k),
        first_(args.level == 0 ? 0 : args.top_k * (1 + (args.level - 1) * args.top_k)) {}

  /// The level's candidates begin here in the sequence's pool.
  SPECULA_HD int first() const { return first_; }

  /// Selects the K likeliest of the level's candidates, ties to the older, as the next level for the draft to
  /// be run on. `chosen` is (K) of shared memory.
  SPECULA_HD void finish(Select<Block>& select, std::int32_t* chosen) {
    const DynamicTreeWork& work = args_.work;
    const auto warp = block_.warp();
    const bool row = warp.rank() < rows_;  // one lane per row: K is at most 32
    const Status mine =
        row ? work.row_status[static_cast<std::int64_t>(sequence_) * args_.top_k + warp.rank()] : Status::ok;
    const bool last = args_.level == args_.expansions;
    if (!last)
      select.read(rows_ * args_.top_k, [&](int i) {
        return rank_value(work.pool.reach[work.pool.first(sequence_) + first_ + i]);
      });
    const std::uint32_t bad = warp.ballot(mine != Status::ok);
    const auto status = static_cast<Status>(
        bad ? warp.shuffle(static_cast<std::int32_t>(mine), first_lane(bad)) : std::int32_t{0});
    if (block_.rank() == 0 && (bad || args_.level == 0)) work.status[sequence_] = status;
    if (last) return;
    const int count = select.choose(bad ? 0 : args_.top_k, [&](int i, int slot) { chosen[slot] = i; });
    write(chosen, count);
  }

 private:
  /// Writes the slots of the next level: candidates chosen[0, count) of this one, by age, then empty slots. A
  /// thread reads all its inputs first.
  SPECULA_HD void write(const std::int32_t* chosen, int count) const {
    const int k = args_.top_k, words = args_.draft_words;
    const std::int64_t slots = (static_cast<std::int64_t>(args_.level) * args_.sequences + sequence_) * k;
    const std::int64_t above = slots - static_cast<std::int64_t>(args_.sequences) * k;  // the level before
    const std::int64_t pool = args_.work.pool.first(sequence_) + first_;
    const std::int32_t position = args_.roots.position[sequence_] + args_.level + 1;
    SPECULA_NO_UNROLL
    for (int i = block_.rank(); i < k * words; i += block_.size()) {
      const int slot = i / words, w = i % words;
      const NodeId node = 1 + args_.level * k + slot;
      const bool there = slot < count, has_parent = there && args_.level > 0;  // beside the root
      const std::int32_t fresh = there ? chosen[slot] : 0;
      const int row = fresh / k;
      const std::uint64_t seen = has_parent ? args_.out.ancestors[(above + row) * words + w]
                                 : w == 0   ? 1u
                                            : 0u;
      const Token token = there && w == 0 ? args_.work.pool.token[pool + fresh] : kNoToken;
      args_.out.ancestors[(slots + slot) * words + w] =
          seen | (node / 64 == w ? std::uint64_t{1} << (node % 64) : 0);
      if (w > 0) continue;
      args_.work.frontier[slots + slot] = there ? first_ + fresh : -1;
      args_.out.token[slots + slot] = token;
      args_.out.parent[slots + slot] = has_parent ? 1 + (args_.level - 1) * k + row : 0;
      args_.out.position[slots + slot] = position;
    }
  }

  Block block_;
  const DynamicTreeArgs<Element>& args_;
  int sequence_, rows_, first_;
};

template <class Cluster>
SPECULA_HD std::size_t dynamic_tree_shared_bytes(const ScanSize& size, int warps, int top_k) {
  return array_bytes<unsigned char>(kFlagBytes) +
         RowTopK<Cluster>::shared_bytes(size, warps, top_k, top_k * top_k);
}

/// Row `index` of a level, (B) at level 0, else (B, K): its K best tokens are candidates; with the last row
/// of a sequence its level is done.
template <class Cluster, class Element>
SPECULA_HD void dynamic_tree_step(Cluster cluster, const DynamicTreeArgs<Element>& args, int index,
                                  unsigned char* shared) {
  using Block = typename RowTopK<Cluster>::Block;
  const int k = args.top_k, rows = args.level == 0 ? 1 : k;
  const int sequence = index / rows, row = index % rows;
  if (!is_live(sequence, args.roots.sequence_count)) return;
  const DynamicTreeWork& work = args.work;
  const std::int32_t parent =
      args.level == 0
          ? -1
          : work.frontier[(static_cast<std::int64_t>(args.level - 1) * args.sequences + sequence) * k + row];
  const bool there = args.level == 0 || parent >= 0;
  const std::int64_t pool = work.pool.first(sequence);
  const double reach = parent < 0 ? 1.0 : work.pool.reach[pool + parent];  // early, to hide its latency
  RowTopK<Cluster> top(cluster, args.scan, k, k * k, behind<unsigned char>(shared, kFlagBytes));
  Status status = Status::ok;
  if (there)
    status = top.find(Row<Element>{args.rows.logits + index * args.rows.stride, args.scan.vocab});
  else
    top.leave();
  if (cluster.rank() != 0) return;

  const Block block = cluster.block();
  DynamicTreeLevel<Block, Element> level(block, args, sequence);
  SPECULA_NO_UNROLL
  for (int i = block.rank(); i < k; i += block.size()) {
    const std::int64_t at = pool + level.first() + row * k + i;
    if (there && i < top.found()) {
      const TopToken t = top[i];
      work.pool.put(at, t.token, parent, t.prob, reach * t.prob);
    } else {
      work.pool.put(at, kNoToken, parent, 0, kNoReach);
    }
  }
  if (block.rank() == 0) {
    work.row_status[static_cast<std::int64_t>(sequence) * k + row] = status;
    if (args.level == 0) work.arrived[sequence] = 0;
  }
  if (args.level == 0)
    block.sync();
  else if (!is_last_to_arrive(block, work.arrived + sequence, rows, reinterpret_cast<int*>(shared)))
    return;
  level.finish(top.top().select(), top.top().selected());
}

/// All of a plan that does not depend on a device. False where a capacity is out of range.
inline bool size_plan(DynamicTreeSizes* plan, const DynamicTreeCapacity& capacity) {
  const std::int64_t k = capacity.top_k, expansions = capacity.expansions;
  if (capacity.sequences < 1 || k < 1 || k > kMaxOfRow || expansions < 0 || expansions > 1000 ||
      capacity.total < 1 || capacity.vocab < 1)
    return false;
  plan->sequences = capacity.sequences;
  plan->top_k = capacity.top_k;
  plan->expansions = capacity.expansions;
  plan->vocab = capacity.vocab;
  plan->pool = static_cast<int>(k * (1 + expansions * k));
  plan->width = 1 + smaller(capacity.total, plan->pool);
  plan->draft_words = mask_words(static_cast<int>(1 + expansions * k));
  return true;
}

/// Host-side checks of a step's arguments.
template <class Element>
bool valid_step(const DynamicTreePlan<Element>& plan, int level, const Roots& roots,
                const DraftRows<Element>& rows, const DraftLevels& out, const void* workspace,
                std::size_t workspace_size) {
  const bool writes = level < plan.expansions;
  return plan.sequences >= 1 && is_plan(level == 0 ? plan.root_scan : plan.scan, false) && level >= 0 &&
         level <= plan.expansions && valid_rows(rows, plan.vocab) && roots.position &&
         !any_misaligned(roots.position, roots.sequence_count) &&
         (!writes || !any_null({out.token, out.parent, out.position, out.ancestors})) &&
         !any_misaligned(out.token, out.parent, out.position, out.ancestors) &&
         valid_workspace(workspace, workspace_size, DynamicTreeWork::bytes(plan));
}
inline bool valid_rerank(const DynamicTreeSizes& plan, const Roots& roots, const GrownTrees& out,
                         const Status* status, const void* workspace, std::size_t workspace_size) {
  return plan.sequences >= 1 && valid_trees(roots, out, status) &&
         valid_workspace(workspace, workspace_size, DynamicTreeWork::bytes(plan));
}

#ifdef __CUDACC__

template <class Element>
__global__ void __launch_bounds__(512, 1)
    dynamic_tree_step_kernel(const __grid_constant__ DynamicTreeArgs<Element> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  dynamic_tree_step(cluster, args, static_cast<int>(blockIdx.x) / cluster.size(), shared);
}

#endif  // __CUDACC__

}  // namespace detail

/// Bytes of device memory for a plan's pool during growth; at an address that is a multiple of 8. Its content
/// before the first step does not matter.
inline std::size_t workspace_bytes(const DynamicTreeSizes& plan) {
  return detail::DynamicTreeWork::bytes(plan);
}

#ifdef __CUDACC__

/// A plan for growth with these capacities on the current device. Outside of captures. Errors:
/// cudaErrorInvalidDevice if that is not `device`; cudaErrorInvalidValue where a capacity is below 1
/// (expansions: 0), top_k is above 32 or expansions above 1,000, or a block lacks the shared memory that it
/// needs (a step's at most 32 bytes for 512 tokens of the vocabulary, 22 K^2, and 27,000; the rerank's 40
/// bytes for each draft token to choose from, and 3,000); else the driver's error.
template <class Element>
cudaError_t make_dynamic_tree_plan(DynamicTreePlan<Element>* plan, const DynamicTreeCapacity& capacity,
                                   int device) {
  DynamicTreePlan<Element> out;
  if (!detail::size_plan(&out, capacity)) return cudaErrorInvalidValue;
  const auto plan_rows = [&](int rows, detail::ScanPlan* scan) {
    return detail::make_scan_plan(
        detail::dynamic_tree_step_kernel<Element>, detail::ScanTask{rows, out.vocab, sizeof(Element), 1, 1},
        device,
        [&](const detail::ScanSize& size, int warps) {
          return detail::dynamic_tree_shared_bytes<DeviceCluster>(size, warps, out.top_k);
        },
        scan);
  };
  cudaError_t error = plan_rows(out.sequences, &out.root_scan);
  if (error == cudaSuccess) error = plan_rows(out.sequences * out.top_k, &out.scan);
  if (error == cudaSuccess)
    error = detail::prepare_build_tree(out.pool, 0, out.width, device, &out.rerank_shared_bytes);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// One level of growth, as specula::DynamicTree. Level 0 reads the draft's rows after the roots, (B, V), and
/// starts a new tree; level l in [1, E] reads those of level l - 1 of `out`, (B, K, V), in that order. The K
/// best tokens of each row are candidates (largest logits, ties to the lower token, never -infinity), scored
/// by the product of the draft's softmax probabilities, at temperature 1, along their path. The K best
/// candidates of the level, ties to the older, are written to level l of `out` (by age) as the next input of
/// the draft; level E writes none. All levels must be run, in order, on the same workspace, each after the
/// draft. A sequence with a bad row grows no further. No output may overlap an input.
///
/// Cost: one launch; a read of the rows and a second one of no more than K tiles of 512 tokens of each.
/// Errors: cudaErrorInvalidValue for a level that is not in [0, E], a stride that is neither 0 nor at least
/// V, an array that is null (those of `out` may be at level E) or misaligned, and a workspace that is null,
/// misaligned or smaller than workspace_bytes(plan). Source: EAGLE-2 (Li et al. 2024).
/// @code
/// DynamicTreePlan<BFloat16> plan;  // once
/// DynamicTreeCapacity capacity;    // as published: the 10 best tokens of a row, 5 levels, 59 draft tokens
/// capacity.sequences = sequences, capacity.vocab = vocab;
/// make_dynamic_tree_plan(&plan, capacity, device);
/// const DraftRows<BFloat16> rows{draft_logits, vocab};
/// for (int level = 0; level <= plan.expansions; ++level) {
///   // here the draft runs: on the roots at level 0, then on level - 1 of `levels`
///   dynamic_tree_step(plan, level, roots, rows, levels, memory, workspace_bytes(plan), stream);
/// }
/// dynamic_tree_rerank(plan, roots, grown, status, memory, workspace_bytes(plan), stream);
/// @endcode
template <class Element>
cudaError_t dynamic_tree_step(const DynamicTreePlan<Element>& plan, int level, const Roots& roots,
                              const DraftRows<Element>& rows, const DraftLevels& out, void* workspace,
                              std::size_t workspace_size, cudaStream_t stream) {
  if (!detail::valid_step(plan, level, roots, rows, out, workspace, workspace_size))
    return cudaErrorInvalidValue;
  const detail::ScanPlan& scan = level == 0 ? plan.root_scan : plan.scan;
  const detail::DynamicTreeArgs<Element> args{rows,
                                              roots,
                                              out,
                                              detail::DynamicTreeWork::at(workspace, plan),
                                              scan.size,
                                              plan.sequences,
                                              plan.top_k,
                                              plan.expansions,
                                              plan.draft_words,
                                              level};
  return detail::launch(detail::dynamic_tree_step_kernel<Element>,
                        plan.sequences * (level == 0 ? 1 : plan.top_k), scan.cluster, scan.threads,
                        scan.shared_bytes, stream, args);
}

/// Proposals of the `total` candidates of all levels that are most likely to be accepted, ties to the older.
/// With the root they form a tree: an ancestor is at least as likely as its descendants. Nodes are numbered
/// by age, level after level. A sequence with a bad row, or whose limit is below 2, proposes its root alone.
/// `status`, (B), may be null. No output may overlap an input. Cost: one launch with one block per sequence.
/// Errors: cudaErrorInvalidValue for arrays and workspaces as dynamic_tree_step().
inline cudaError_t dynamic_tree_rerank(const DynamicTreeSizes& plan, const Roots& roots,
                                       const GrownTrees& out, Status* status, void* workspace,
                                       std::size_t workspace_size, cudaStream_t stream) {
  if (!detail::valid_rerank(plan, roots, out, status, workspace, workspace_size))
    return cudaErrorInvalidValue;
  const detail::DynamicTreeWork work = detail::DynamicTreeWork::at(workspace, plan);
  return detail::build_tree({roots, work.pool, out, work.status, status, plan.sequences, plan.width, 0},
                            plan.rerank_shared_bytes, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
