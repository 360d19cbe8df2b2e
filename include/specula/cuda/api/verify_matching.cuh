// SPDX-License-Identifier: MIT
// Verification by rules that match the target's choices: greedy, and sample-and-match.
//
// Work: verify_kernel (verify.cuh) has one cluster per sequence; verify_nodes_kernel has one per node, and
// the last to arrive of a sequence applies the rule.
// Traffic: verify_nodes_kernel reads every row once; choices, 12 bytes per node, go through the workspace.
// Forms: greedy or sample-and-match; Untruncated<Plan> has no code for cuts. make_verify_plan() chooses the
// kernel by asks_all_nodes(); a batch with a null `parent` always takes verify_kernel.
// Reference: accept/exact_rules.hpp; tests/cuda/api/verify_matching.cpp; bench/cuda/verification_check.cu.
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program verification).
#pragma once

#include <cstddef>
#include <cstdint>

#include "specula/cuda/api/scan_plan.cuh"
#include "specula/cuda/api/verify.cuh"
#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/verify/rules.cuh"
#include "specula/cuda/detail/verify/verify_nodes.cuh"

namespace specula {
namespace cuda {

/// The plan of a rule that may compute all nodes at once, for trees that are no chains: it then needs a
/// workspace.
template <class Rule, class Element>
struct MatchingPlan {
  VerifyPlan<Rule, Element, ChosenDraft> verifier;  ///< the rule along the accepted path
  bool all_nodes = false;  ///< whether all nodes are computed at once, which takes a workspace
  detail::ScanPlan nodes;  ///< how their rows are read
};

/// Greedy verification: a draft token is accepted iff it is the target's first largest logit. The text of
/// greedy decoding, for any sampling parameters and any proposals, as specula::Greedy; bad parameters are
/// refused all the same. Uniform draws: none. Cost: one read of a row for each node of the accepted path; of
/// all nodes where the plan says so, whose workspace is then needed.
template <class Element>
using GreedyPlan = MatchingPlan<detail::GreedyRule, Element>;

/// Sample-and-match verification: a draft token is accepted iff it equals the target's sample. Samples from
/// the target for every proposal, as specula::SampleAndMatch: it never reads q, and for deterministic
/// proposals no rule accepts more. With the same seed the text is that of plain sampling with sample().
/// Uniform draws: one `sample` per token. Cost as GreedyPlan.
template <class Element>
using SampleAndMatchPlan = MatchingPlan<detail::SampleAndMatchRule, Element>;

namespace detail {
template <class Rule, class Element>
struct UntruncatedOf<MatchingPlan<Rule, Element>> {
  using Plan = MatchingPlan<WithoutCuts<Rule>, Element>;
};
}  // namespace detail

/// Bytes of a workspace's parts and counters; 0 where none is needed.
template <class Rule, class Element>
std::size_t part_bytes(const MatchingPlan<Rule, Element>& plan) {
  return plan.all_nodes ? sizeof(detail::NodeChoice) * static_cast<std::size_t>(plan.verifier.sequences) *
                              static_cast<std::size_t>(plan.verifier.max_nodes)
                        : 0;
}
/// Bytes of a workspace's counters; 0 where none is needed.
template <class Rule, class Element>
std::size_t counter_bytes(const MatchingPlan<Rule, Element>& plan) {
  return plan.all_nodes ? sizeof(std::uint32_t) * static_cast<std::size_t>(plan.verifier.sequences) : 0;
}

namespace detail {

/// Whether to compute all nodes at once: rows off the path cost their bytes, a step along the path its
/// latency, in which a multiprocessor would read some 120 tiles of 1 KB.
inline bool asks_all_nodes(const VerifyCapacity& c, std::size_t element_bytes, int processors) {
  const std::int64_t off_the_path = smaller(c.max_nodes, 1 << 20) - (c.max_depth + 1);
  const std::int64_t bytes = off_the_path * c.sequences * c.vocab * static_cast<std::int64_t>(element_bytes);
  return c.max_depth > 0 && bytes < std::int64_t{c.max_depth + 1} * 120 * 1024 * processors;
}

#ifdef __CUDACC__

template <class Rule, class Element>
__global__ void __launch_bounds__(512, 1)
    verify_nodes_kernel(const __grid_constant__ NodesArgs<Element> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  verify_node<Rule>(cluster, args, static_cast<int>(blockIdx.x) / cluster.size(), shared);
}

#endif  // __CUDACC__

}  // namespace detail

#ifdef __CUDACC__

/// As make_verify_plan() of other rules, in arguments and errors.
template <class Rule, class Element>
cudaError_t make_verify_plan(MatchingPlan<Rule, Element>* plan, const VerifyCapacity& capacity, int device) {
  MatchingPlan<Rule, Element> out;
  cudaError_t error = make_verify_plan(&out.verifier, capacity, device);
  detail::DeviceLimits limits;
  if (error == cudaSuccess) error = detail::device_limits(device, &limits);
  if (error != cudaSuccess) return error;
  out.all_nodes = detail::asks_all_nodes(capacity, sizeof(Element), limits.processors);
  if (out.all_nodes)
    error = detail::make_scan_plan(
        detail::verify_nodes_kernel<Rule, Element>,
        detail::ScanTask{capacity.sequences * capacity.max_nodes, capacity.vocab, sizeof(Element), 1, 1},
        device,
        [&](const detail::ScanSize& size, int warps) {
          return detail::nodes_bytes<DeviceCluster>(size, capacity.max_nodes, warps);
        },
        &out.nodes);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// Verifies a batch by the plan's rule, which says what is accepted and what it costs. One launch; nothing is
/// allocated. Errors: cudaErrorInvalidValue for a plan that was not made, for null or misaligned arrays, and
/// for a workspace that is too small; else the launch's error.
/// @code
/// SampleAndMatchPlan<BFloat16> plan;  // once; likewise GreedyPlan
/// make_verify_plan(&plan, capacity, device);
/// const Workspace workspace{parts, part_bytes(plan), counters, counter_bytes(plan)};
/// zero_counters(workspace, stream);
/// verify_trees(plan, trees, target_rows, results, workspace, stream);
/// @endcode
template <class Rule, class Element>
cudaError_t verify_trees(const MatchingPlan<Rule, Element>& plan, const Trees& trees,
                         const TargetRows<Element>& target, const VerifyResults& out,
                         const Workspace& workspace, cudaStream_t stream) {
  if (!plan.all_nodes || !trees.parent)
    return verify_trees(plan.verifier, trees, target, ChosenDraft{}, out, stream);
  if (plan.verifier.sequences < 1 || !detail::is_plan(plan.nodes, false) || !detail::valid_trees(trees) ||
      !detail::valid_rows(target) || !detail::valid_results(out) ||
      !detail::is_room(workspace, part_bytes(plan), counter_bytes(plan)))
    return cudaErrorInvalidValue;
  const detail::NodesArgs<Element> args{
      {trees, target, {}, out, plan.verifier.max_nodes, plan.verifier.width, plan.nodes.size, 0},
      static_cast<detail::NodeChoice*>(workspace.parts),
      reinterpret_cast<std::int32_t*>(workspace.counters)};
  return detail::launch(detail::verify_nodes_kernel<Rule, Element>,
                        plan.verifier.sequences * plan.verifier.max_nodes, plan.nodes.cluster,
                        plan.nodes.threads, plan.nodes.shared_bytes, stream, args);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
