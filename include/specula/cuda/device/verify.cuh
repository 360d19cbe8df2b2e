// What the verification rules have in common: a plan, and one launch of a cluster a sequence.
#pragma once

#include "specula/cuda/args/arguments.cuh"
#include "specula/cuda/args/trees.cuh"
#include "specula/cuda/args/launch.cuh"
#include "specula/cuda/device/scan_plan.cuh"
#include "specula/cuda/host_device.cuh"
#include "specula/cuda/verify/sequence_verifier.cuh"

namespace specula {
namespace cuda {

/// What the host knows of the batches to come; everything else is device arrays, so that one captured graph
/// serves every round.
struct VerifyCapacity {
  int sequences = 1;   // B: exactly so many are verified each time (an empty tree is one of its root alone)
  int max_nodes = 64;  // of a tree, the root included
  int max_depth = 8;   // draft tokens of a path
  int vocab = 0;       // V
};

/// How a batch is verified by one rule, with rows of `Element` and draft tokens of a kind of `Draft`: no
/// other rule takes it.
template <class Rule, class Element, class Draft>
struct VerifyPlan {
  int sequences = 0, max_nodes = 0;
  int width = 0;  // row length of Verification results
  detail::ScanPlan scan;
};

namespace detail {

inline bool valid_capacity(const VerifyCapacity& c) {
  return c.sequences >= 1 && c.max_nodes >= 1 && c.max_depth >= 0 && c.vocab >= 1;
}
inline bool valid_trees(const Trees& t) {
  return !any_null({t.begin, t.token, t.position, t.seed}) &&
         !any_misaligned(t.begin, t.token, t.parent, t.position, t.seed, t.sequence);
}
inline bool valid_results(const VerifyResults& v) {
  return !any_null({v.token, v.accepted, v.count, v.status}) &&
         !any_misaligned(v.token, v.accepted, v.count, v.status);
}
template <class Element>
bool valid_rows(const TargetRows<Element>& rows) {
  return rows.logits && !any_misaligned(rows.logits, rows.row_of_node, rows.params);
}
inline bool valid_draft(const ChosenDraft&) { return true; }
template <class Element>
bool valid_draft(const LogitsDraft<Element>& d) {
  return d.logits && d.stats && d.rows >= 0 && !any_misaligned(d.logits, d.stats, d.row_of_node, d.scale);
}
inline bool valid_draft(const ProbsDraft& d) {
  return d.probs && d.rows >= 0 && !any_misaligned(d.probs, d.row_of_node, d.scale);
}
inline bool valid_draft(const SparseDraft& d) {
  return d.token && d.prob && d.k >= 1 && d.rows >= 0 &&
         !any_misaligned(d.token, d.prob, d.row_of_node, d.scale);
}

/// Rows of a chain that a rule gains by reading together, whatever it decides: one that stops at the first
/// draft token that is not the largest logit mostly stops at once; one that judges from the end wants all.
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
/// device is the current one; else what the driver says.
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
