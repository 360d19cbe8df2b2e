// SPDX-License-Identifier: MIT
// Verification of ragged batches of trees by one cluster per sequence: rejection, traversal and block rules.
//
// Work: one cluster per sequence; the first warp of each block decides, the others read rows on request.
// Traffic: rows pass through rings of 4 or 8 KB per warp; each block keeps two floats per tile (512 tokens).
// Forms: by rule, element and draft type; block verification launches the traversal kernel; Untruncated<Plan>
// has no code for cuts. make_scan_plan() chooses cluster, threads and rows per pass.
// Reference: accept/exact_rules.hpp; tests/cuda/api/verify_rejection.cpp, verify_traversal.cpp;
// bench/cuda/verification_check.cu.
// Example: nvcc -std=c++17 -arch=sm_90a -I include examples/cuda/sample_and_verify.cu
// Check and time: scripts/gpu --out FOLDER --sections check,bars (program verification).
#pragma once

#include "specula/cuda/api/scan_plan.cuh"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/detail/primitives/launch.cuh"
#include "specula/cuda/detail/verify/rules.cuh"
#include "specula/cuda/detail/verify/sequence_verifier.cuh"

namespace specula {
namespace cuda {

/// Plan of a batch that is verified by one rule, with rows of `Element` and draft tokens of the form `Draft`;
/// a type of its own per rule.
template <class Rule, class Element, class Draft>
struct VerifyPlan {
  int sequences = 0,      ///< B
      max_nodes = 0;      ///< of a tree
  int width = 0;          ///< row length of Verification results
  detail::ScanPlan scan;  ///< how rows are read
  /// Rows of odd sequences' chains in their first pass, at most scan.size.rows; 0: as many as of others. With
  /// another number two sequences on one multiprocessor do not read and decide in step. The results are the
  /// same. Not measured on a device.
  int odd_rows = 0;
};

/// Speculative rejection sampling, token-level, recursive over siblings: tries children in the order in which
/// they were drawn, accepts x with probability min(1, p(x) / q(x)), else p <- norm((p - q)+); after all are
/// rejected, draws from the residual. As specula::Rejection, with the same uniform draws: on one path
/// token-level speculative sampling (Leviathan et al. 2023; Chen et al. 2023), over siblings SpecInfer's and
/// Sequoia's. Cost: one read of a row for each node of the accepted path, in a chain of some more; a
/// rejection reads the target's row again, which is usually still cached, and the draft's.
template <class Element, class Draft>
using RejectionPlan = VerifyPlan<detail::RejectionRule, Element, Draft>;

/// Traversal verification, from the leaves to the root: rejects a path only after its end was tried. As
/// specula::Traversal, with the same uniform draws (Weng et al. 2025). Cost: one read of a row for each inner
/// node on the way to the first accepted leaf, in a chain of all; a rejection reads its parent's row and the
/// draft's again (chosen nodes: one logit).
template <class Element, class Draft>
using TraversalPlan = VerifyPlan<detail::TraversalRule, Element, Draft>;

/// Block verification: accepts a prefix of one path by joint probabilities, the optimum for one path.
/// Traversal on chains, as specula::Block (Sun et al. 2024): from the end to the beginning, so rows are read
/// a second time only after a rejection. For `trees.parent` null alone. Its kernel is traversal's.
template <class Element, class Draft, class Rule = detail::TraversalRule>
struct BlockPlan : VerifyPlan<Rule, Element, Draft> {};

namespace detail {

template <class Rule, class Element, class Draft>
struct UntruncatedOf<VerifyPlan<Rule, Element, Draft>> {
  using Plan = VerifyPlan<WithoutCuts<Rule>, Element, Draft>;
};
template <class Element, class Draft, class Rule>
struct UntruncatedOf<BlockPlan<Element, Draft, Rule>> {
  using Plan = BlockPlan<Element, Draft, WithoutCuts<Rule>>;
};

}  // namespace detail

#ifdef __CUDACC__

namespace detail {

template <class Rule, class Element, class Draft>
__global__ void __launch_bounds__(512, 1)
    verify_kernel(const __grid_constant__ VerifyArgs<Element, Draft> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  SequenceVerifier<Rule, DeviceCluster, Element, Draft>::verify_sequence(
      cluster, args, static_cast<int>(blockIdx.x) / cluster.size(), shared);
}

}  // namespace detail

/// A plan for batches of up to the given sizes. Outside of captures, for `device`, which is the current one.
/// Errors: cudaErrorInvalidValue where a capacity is below 1, or a block has less shared memory than needed
/// (at most 8 KB per warp, 16 bytes per 512 tokens of each row that is read in one pass, 124 bytes per node);
/// cudaErrorInvalidDevice where another device is the current one; else the driver's error.
template <class Rule, class Element, class Draft>
cudaError_t make_verify_plan(VerifyPlan<Rule, Element, Draft>* plan, const VerifyCapacity& capacity,
                             int device) {
  if (!detail::valid_capacity(capacity)) return cudaErrorInvalidValue;
  VerifyPlan<Rule, Element, Draft> out;
  out.sequences = capacity.sequences;
  out.max_nodes = capacity.max_nodes;
  out.width = capacity.max_depth + 1;
  const detail::ScanTask task{capacity.sequences, capacity.vocab, sizeof(Element),
                              detail::smaller(capacity.max_nodes, out.width), Rule::kMinRows};
  const cudaError_t error = detail::make_scan_plan(
      detail::verify_kernel<Rule, Element, Draft>, task, device,
      [&](const detail::ScanSize& size, int warps) {
        return detail::SequenceVerifier<Rule, DeviceCluster, Element, Draft>::shared_bytes(
            size, capacity.max_nodes, warps);
      },
      &out.scan);
  if (error == cudaSuccess) *plan = out;
  return error;
}

/// Verifies a batch by the plan's rule, which says what is accepted and what it costs. One launch; nothing is
/// allocated. Errors: cudaErrorInvalidValue for a plan that was not made or whose odd_rows are out of range,
/// and for null or misaligned arrays; else the launch's error.
/// @code
/// RejectionPlan<BFloat16, LogitsDraft<BFloat16>> plan;  // once; likewise TraversalPlan
/// make_verify_plan(&plan, VerifyCapacity{sequences, max_nodes, max_depth, vocab}, device);
/// const TargetRows<BFloat16> target{target_logits, vocab, nullptr, params};
/// const LogitsDraft<BFloat16> draft{draft_logits, vocab, row_stats};  // statistics as sample() writes them
/// verify_trees(plan, trees, target, draft, results, stream);
/// @endcode
template <class Rule, class Element, class Draft>
cudaError_t verify_trees(const VerifyPlan<Rule, Element, Draft>& plan, const Trees& trees,
                         const TargetRows<Element>& target, const Draft& draft, const VerifyResults& out,
                         cudaStream_t stream) {
  if (plan.sequences < 1 || !detail::is_plan(plan.scan, true) || plan.odd_rows < 0 ||
      plan.odd_rows > plan.scan.size.rows || !detail::valid_trees(trees) || !detail::valid_rows(target) ||
      !detail::valid_draft(draft) || !detail::valid_results(out))
    return cudaErrorInvalidValue;
  const detail::VerifyArgs<Element, Draft> args{trees,          target,     draft,          out,
                                                plan.max_nodes, plan.width, plan.scan.size, plan.odd_rows};
  return detail::launch(detail::verify_kernel<Rule, Element, Draft>, plan.sequences, plan.scan.cluster,
                        plan.scan.threads, plan.scan.shared_bytes, stream, args);
}
/// The same for chains alone: also cudaErrorInvalidValue unless `trees.parent` is null.
/// @code
/// BlockPlan<BFloat16, ProbsDraft> plan;  // once
/// make_verify_plan(&plan, capacity, device);
/// verify_trees(plan, chains, target_rows, ProbsDraft{draft_probs, vocab}, results, stream);
/// @endcode
template <class Element, class Draft, class Rule>
cudaError_t verify_trees(const BlockPlan<Element, Draft, Rule>& plan, const Trees& trees,
                         const TargetRows<Element>& target, const Draft& draft, const VerifyResults& out,
                         cudaStream_t stream) {
  if (trees.parent) return cudaErrorInvalidValue;
  const VerifyPlan<Rule, Element, Draft>& traversal = plan;
  return verify_trees(traversal, trees, target, draft, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
