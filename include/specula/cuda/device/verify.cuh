// What the verification rules have in common: a plan, and one launch of a cluster a sequence.
#pragma once

#include "../block/walk.cuh"
#include "../detail/host_device.cuh"
#include "launch.cuh"
#include "trees.cuh"

namespace specula {
namespace cuda {

/// What the host knows of the batches to come; everything else is device arrays, so that one captured graph
/// serves every round.
struct VerifyCapacity {
  int sequences = 1;   // B: exactly so many are verified each time (an empty tree is one of its root alone)
  int max_nodes = 64;  // of a tree, the root included
  int max_depth = 8;   // guesses of a path
  int vocab = 0;       // V
};

/// How a batch is verified. `width` is the row length of Verdicts.
struct VerifyPlan {
  int sequences = 0, max_nodes = 0, width = 0, vocab = 0;
  int cluster = 1, threads = 384;
  std::size_t shared_bytes = 0;
};

namespace detail {

#ifdef __CUDACC__

template <class Rule, class Element, class Draft>
__global__ void __launch_bounds__(384, 1)
    verify_kernel(const __grid_constant__ VerifyArgs<Element, Draft> args) {
  extern __shared__ __align__(16) unsigned char shared[];
  const DeviceCluster cluster;
  Walk<DeviceCluster, Element, Draft> walk(cluster, args, static_cast<int>(blockIdx.x) / cluster.size(),
                                           shared);
  (Rule::verify)(walk);
}

/// Outside of captures, for `device`, which is the current one. Errors: cudaErrorInvalidValue where a
/// capacity is below 1 or needs more shared memory than a block has, and what the driver says.
template <class Rule, class Element, class Draft>
cudaError_t make_verify_plan(VerifyPlan* plan, const VerifyCapacity& capacity, int device) {
  if (capacity.sequences < 1 || capacity.max_nodes < 1 || capacity.max_depth < 0 || capacity.vocab < 1)
    return cudaErrorInvalidValue;
  VerifyPlan out;
  out.sequences = capacity.sequences;
  out.max_nodes = capacity.max_nodes;
  out.width = capacity.max_depth + 1;
  out.vocab = capacity.vocab;
  out.shared_bytes = Walk<DeviceCluster, Element, Draft>::shared_bytes(capacity.vocab, capacity.max_nodes);
  const cudaError_t error =
      plan_clusters(verify_kernel<Rule, Element, Draft>, capacity.sequences, capacity.vocab, out.threads,
                    out.shared_bytes, device, &out.cluster);
  if (error == cudaSuccess) *plan = out;
  return error;
}

template <class Rule, class Element, class Draft>
cudaError_t (verify)(const VerifyPlan& plan, const Trees& trees, const TargetRows<Element>& target,
                   const Draft& draft, const Verdicts& out, cudaStream_t stream) {
  const VerifyArgs<Element, Draft> args{trees, target, draft, out, plan.vocab, plan.max_nodes, plan.width};
  return launch(verify_kernel<Rule, Element, Draft>, plan.sequences, plan.cluster, plan.threads,
                plan.shared_bytes, stream, args);
}

#endif  // __CUDACC__

}  // namespace detail
}  // namespace cuda
}  // namespace specula
