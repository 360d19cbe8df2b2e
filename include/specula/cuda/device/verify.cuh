// Verification plan and launch shared by all rules: one cluster per sequence.
#pragma once

#include "specula/cuda/args/launch.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/device/scan_plan.cuh"
#include "specula/cuda/host_device.cuh"
#include "specula/cuda/verify/sequence_verifier.cuh"

namespace specula {
namespace cuda {

/// Plan of a batch that is verified by one rule, with rows of `Element` and draft tokens of the form `Draft`;
/// a type of its own per rule.
template <class Rule, class Element, class Draft>
struct VerifyPlan {
  int sequences = 0, max_nodes = 0;
  int width = 0;  // row length of Verification results
  detail::ScanPlan scan;
};

namespace detail {

/// Rows of a chain that a rule gains by reading together, whatever it decides: a rule that stops at the first
/// draft token that is not the largest logit mostly stops at once; one that starts from the end reads all.
constexpr int least_rows(bool greedy, bool judges_from_the_end) {
  return greedy ? 1 : judges_from_the_end ? kMostRows : 2;
}

#ifdef __CUDACC__

template <class Rule, class Element, class Draft>
__global__ void __launch_bounds__(512, 1)
    verify_kernel(const __grid_constant__ VerifyArgs<Element, Draft> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  SequenceVerifier<Rule, DeviceCluster, Element, Draft>(cluster, args,
                                                        static_cast<int>(blockIdx.x) / cluster.size(), shared)
      .run();
}

/// Outside of captures, for `device`, which is the current one. Errors: cudaErrorInvalidValue where a
/// capacity is below 1 or needs more shared memory than a block has; cudaErrorInvalidDevice where another
/// device is the current one; else the driver's error.
template <class Rule, class Element, class Draft>
cudaError_t make_verify_plan(VerifyPlan<Rule, Element, Draft>* plan, const VerifyCapacity& capacity,
                             int device) {
  if (!valid_capacity(capacity)) return cudaErrorInvalidValue;
  VerifyPlan<Rule, Element, Draft> out;
  out.sequences = capacity.sequences;
  out.max_nodes = capacity.max_nodes;
  out.width = capacity.max_depth + 1;
  const ScanTask task{capacity.sequences, capacity.vocab, sizeof(Element),
                      smaller(capacity.max_nodes, out.width), Rule::kLeastRows};
  const cudaError_t error = make_scan_plan(
      verify_kernel<Rule, Element, Draft>, task, device,
      [&](const ScanSize& size, int warps) {
        return SequenceVerifier<Rule, DeviceCluster, Element, Draft>::shared_bytes(size, capacity.max_nodes,
                                                                                   warps);
      },
      &out.scan);
  if (error == cudaSuccess) *plan = out;
  return error;
}

template <class Rule, class Element, class Draft>
cudaError_t(verify)(const VerifyPlan<Rule, Element, Draft>& plan, const Trees& trees,
                    const TargetRows<Element>& target, const Draft& draft, const VerifyResults& out,
                    cudaStream_t stream) {
  if (plan.sequences < 1 || !is_plan(plan.scan, true) || !valid_trees(trees) || !valid_rows(target) ||
      !valid_draft(draft) || !valid_results(out))
    return cudaErrorInvalidValue;
  const VerifyArgs<Element, Draft> args{trees,          target,     draft,         out,
                                        plan.max_nodes, plan.width, plan.scan.size};
  return launch(verify_kernel<Rule, Element, Draft>, plan.sequences, plan.scan.cluster, plan.scan.threads,
                plan.scan.shared_bytes, stream, args);
}

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
