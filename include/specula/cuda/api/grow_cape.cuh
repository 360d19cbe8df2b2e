// SPDX-License-Identifier: MIT
// CAPE on the device: a greedy chain with sibling tokens, more of them where the draft is less confident.
//
// Work: a step has one cluster per sequence. cape_finish() runs build_tree_kernel (grown_trees.cuh).
// Traffic: a row passes through rings in shared memory; its spine token and extras go to the workspace.
// Forms: by element type; make_cape_plan() chooses cluster and threads.
// Reference: shape/cape.hpp; tests/cuda/api/grow_cape.cpp; bench/cuda/growth_check.cu.
// Check: scripts/gpu --out FOLDER --sections check (program growth).
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/api/scan_plan.cuh"
#include "specula/cuda/args/growth.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/detail/grow/grown_trees.cuh"
#include "specula/cuda/detail/grow/top_k.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"

namespace specula {
namespace cuda {

/// Launch configuration of growth, and the sizes of its outputs.
struct CapeSizes {
  int sequences = 0,                    ///< B
      length = 0,                       ///< L
      vocab = 0;                        ///< V
  CapeExtras extras = {};               ///< as given
  int most = 0;                         ///< extras of a row
  int pool = 0;                         ///< draft tokens to choose from: L * (1 + most)
  int width = 0;                        ///< nodes of GrownTrees: 1 + the smaller of budget and pool
  detail::ScanPlan scan;                ///< how rows are read
  std::size_t finish_shared_bytes = 0;  ///< of the kernel that chooses the proposal
};

/// The same, made for rows of Element. See make_cape_plan().
template <class Element>
struct CapePlan : CapeSizes {};

namespace detail {

/// State of growth between its steps. A sequence's pool is its spine, (L), and then the extras of each row,
/// (L, most).
struct CapeWork {
  Pool pool;
  Status* status;  // (B)

  static std::size_t bytes(const CapeSizes& plan) {
    return Pool::bytes(plan.sequences, plan.pool) + sizeof(Status) * static_cast<std::size_t>(plan.sequences);
  }
  static CapeWork at(void* memory, const CapeSizes& plan) {
    return {Pool::at(memory, plan.sequences, plan.pool),
            reinterpret_cast<Status*>(static_cast<unsigned char*>(memory) +
                                      Pool::bytes(plan.sequences, plan.pool))};
  }
};

template <class Element>
struct CapeArgs {
  DraftRows<Element> rows;
  Roots roots;
  CapeSpine out;
  CapeWork work;
  CapeExtras extras = {};
  ScanSize scan;
  int sequences, length, most, step;
};

template <class Cluster>
SPECULA_HD std::size_t cape_shared_bytes(const ScanSize& size, int warps, int most) {
  return RowTopK<Cluster>::shared_bytes(size, warps, 1 + most, 0);
}

/// One spine token of one sequence, and its extras.
template <class Cluster, class Element>
SPECULA_HD void cape_step(Cluster cluster, const CapeArgs<Element>& args, int sequence,
                          unsigned char* shared) {
  if (!is_live(sequence, args.roots.sequence_count)) return;
  const CapeWork& work = args.work;
  const Status before = args.step == 0 ? Status::ok : work.status[sequence];
  const std::int64_t pool = work.pool.first(sequence), spine = pool + args.step;
  const double reach = args.step == 0 ? 1.0 : work.pool.reach[spine - 1];  // early, to hide its latency
  RowTopK<Cluster> top(cluster, args.scan, 1 + args.most, 0, shared);
  Status status = before;
  if (before == Status::ok)
    status = top.find(Row<Element>{args.rows.logits + sequence * args.rows.stride, args.scan.vocab});
  else
    top.leave();  // a barrier, as find() is: all blocks know the status before one changes it
  if (cluster.rank() != 0) return;

  const auto block = cluster.block();
  const bool there = status == Status::ok;
  const int extras = there ? args.extras(static_cast<float>(top[0].prob)) : 0;
  for (int i = block.rank(); i <= args.most; i += block.size()) {
    const std::int64_t at =
        i == 0 ? spine : pool + args.length + static_cast<std::int64_t>(args.step) * args.most + i - 1;
    if (there && (i == 0 || (i <= extras && i < top.found()))) {
      const TopToken t = top[i];
      work.pool.put(at, t.token, args.step - 1, t.prob, reach * t.prob);
    } else {
      work.pool.put(at, kNoToken, args.step - 1, 0, kNoReach);
    }
  }
  if (block.rank() == 0) {
    const std::int64_t to = static_cast<std::int64_t>(args.step) * args.sequences + sequence;
    work.status[sequence] = status;
    args.out.token[to] = there ? top[0].token : kNoToken;
    args.out.position[to] = args.roots.position[sequence] + args.step + 1;
  }
}

/// All of a plan that does not depend on a device. False where a capacity is out of range.
inline bool size_plan(CapeSizes* plan, const CapeCapacity& capacity) {
  const int most = larger(0, capacity.extras.most());
  if (capacity.sequences < 1 || capacity.length < 1 || capacity.length > 10000 || capacity.budget < 1 ||
      capacity.vocab < 1 || most >= kMaxOfRow)
    return false;
  plan->sequences = capacity.sequences;
  plan->length = capacity.length;
  plan->vocab = capacity.vocab;
  plan->extras = capacity.extras;
  plan->most = most;
  plan->pool = capacity.length * (1 + most);
  plan->width = 1 + smaller(capacity.budget, plan->pool);
  return true;
}

/// Host-side checks of a step's arguments.
template <class Element>
bool valid_step(const CapePlan<Element>& plan, int step, const Roots& roots, const DraftRows<Element>& rows,
                const CapeSpine& out, const void* workspace, std::size_t workspace_size) {
  return plan.sequences >= 1 && is_plan(plan.scan, false) && step >= 0 && step < plan.length &&
         valid_rows(rows, plan.vocab) && !any_null({roots.position, out.token, out.position}) &&
         !any_misaligned(roots.position, roots.sequence_count, out.token, out.position) &&
         valid_workspace(workspace, workspace_size, CapeWork::bytes(plan));
}
inline bool valid_finish(const CapeSizes& plan, const Roots& roots, const GrownTrees& out,
                         const Status* status, const void* workspace, std::size_t workspace_size) {
  return plan.sequences >= 1 && valid_trees(roots, out, status) &&
         valid_workspace(workspace, workspace_size, CapeWork::bytes(plan));
}

#ifdef __CUDACC__

template <class Element>
__global__ void __launch_bounds__(512, 1) cape_step_kernel(const __grid_constant__ CapeArgs<Element> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  cape_step(cluster, args, static_cast<int>(blockIdx.x) / cluster.size(), shared);
}

#endif  // __CUDACC__

}  // namespace detail

/// Bytes of device memory for a plan's draft tokens during growth; at an address that is a multiple of 8. Its
/// content before the first step does not matter.
inline std::size_t workspace_bytes(const CapeSizes& plan) { return detail::CapeWork::bytes(plan); }

#ifdef __CUDACC__

/// A plan for growth with these capacities on the current device. Outside of captures. Errors:
/// cudaErrorInvalidDevice if that is not `device`; cudaErrorInvalidValue where a capacity is below 1, length
/// above 10,000, extras are above 31, or a block lacks the shared memory to choose among them; else the
/// driver's error.
template <class Element>
cudaError_t make_cape_plan(CapePlan<Element>* plan, const CapeCapacity& capacity, int device) {
  CapePlan<Element> out;
  if (!detail::size_plan(&out, capacity)) return cudaErrorInvalidValue;
  cudaError_t error = detail::make_scan_plan(
      detail::cape_step_kernel<Element>, detail::ScanTask{out.sequences, out.vocab, sizeof(Element), 1, 1},
      device,
      [&](const detail::ScanSize& size, int warps) {
        return detail::cape_shared_bytes<DeviceCluster>(size, warps, out.most);
      },
      &out.scan);
  if (error == cudaSuccess)
    error = detail::prepare_build_tree(out.pool, out.length, out.width, device, &out.finish_shared_bytes);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// Spine token `step`, in [0, L), of every sequence, as specula::Cape: the first largest logit of the draft's
/// row after the token before (step 0: after the root, which starts a new tree), (B, V). Its siblings are
/// other tokens of the row, the best first, their number given by the draft's confidence in it (softmax at
/// temperature 1); they are leaves, so the draft is never run on them. All steps must be run, in order, on
/// the same workspace; the draft before each of them. No output may overlap an input.
///
/// Cost: one launch; a read of the rows and a second one of no more than 1 + extras tiles of 512 tokens of
/// each. Errors: cudaErrorInvalidValue for a step that is not in [0, L), a stride that is neither 0 nor at
/// least V, an array that is null or misaligned, and a workspace that is null, misaligned or smaller than
/// workspace_bytes(plan). Source: GLIDE with a CAPE (Du et al. 2024), section 3.2.
/// @code
/// CapePlan<BFloat16> plan;  // once
/// make_cape_plan(&plan, CapeCapacity{sequences, /*length*/ 4, /*budget*/ 32, vocab}, device);
/// const DraftRows<BFloat16> rows{draft_logits, vocab};
/// for (int step = 0; step < 4; ++step) {
///   // here the draft runs: on the roots at step 0, then on step - 1 of `spine`
///   cape_step(plan, step, roots, rows, spine, memory, workspace_bytes(plan), stream);
/// }
/// cape_finish(plan, roots, grown, status, memory, workspace_bytes(plan), stream);
/// @endcode
template <class Element>
cudaError_t cape_step(const CapePlan<Element>& plan, int step, const Roots& roots,
                      const DraftRows<Element>& rows, const CapeSpine& out, void* workspace,
                      std::size_t workspace_size, cudaStream_t stream) {
  if (!detail::valid_step(plan, step, roots, rows, out, workspace, workspace_size))
    return cudaErrorInvalidValue;
  const detail::CapeArgs<Element> args{rows,
                                       roots,
                                       out,
                                       detail::CapeWork::at(workspace, plan),
                                       plan.extras,
                                       plan.scan.size,
                                       plan.sequences,
                                       plan.length,
                                       plan.most,
                                       step};
  return detail::launch(detail::cape_step_kernel<Element>, plan.sequences, plan.scan.cluster,
                        plan.scan.threads, plan.scan.shared_bytes, stream, args);
}

/// Proposals of the spine and its extras. Where the budget, or the sequence's limit, does not hold all, the
/// spine comes first, then the extras with the likeliest paths, ties to the older. The spine has the lowest
/// numbers, the extras follow row by row. A sequence with a bad row proposes its root alone. `status`, (B),
/// may be null. No output may overlap an input. Cost: one launch with one block per sequence. Errors:
/// cudaErrorInvalidValue for arrays and workspaces as cape_step().
inline cudaError_t cape_finish(const CapeSizes& plan, const Roots& roots, const GrownTrees& out,
                               Status* status, void* workspace, std::size_t workspace_size,
                               cudaStream_t stream) {
  if (!detail::valid_finish(plan, roots, out, status, workspace, workspace_size))
    return cudaErrorInvalidValue;
  const detail::CapeWork work = detail::CapeWork::at(workspace, plan);
  return detail::build_tree(
      {roots, work.pool, out, work.status, status, plan.sequences, plan.width, plan.length},
      plan.finish_shared_bytes, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
