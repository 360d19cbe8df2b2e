// Block verification on the device: accepts a prefix of one path by joint probabilities, the optimum for one
// path.
#pragma once

#include "specula/cuda/device/verify_traversal.cuh"

namespace specula {
namespace cuda {

template <class Element, class Draft>
struct BlockPlan : TraversalPlan<Element, Draft> {};

#ifdef __CUDACC__

template <class Element, class Draft>
cudaError_t make_block_plan(BlockPlan<Element, Draft>* plan, const VerifyCapacity& capacity, int device) {
  return make_traversal_plan(plan, capacity, device);
}

/// Traversal on chains, as specula::Block (Sun et al. 2024): from the end to the beginning, so rows are read
/// a second time only after a rejection. Error cudaErrorInvalidValue unless `trees.parent` is null.
template <class Element, class Draft>
cudaError_t verify_block(const BlockPlan<Element, Draft>& plan, const Trees& trees,
                         const TargetRows<Element>& target, const Draft& draft, const VerifyResults& out,
                         cudaStream_t stream) {
  if (trees.parent) return cudaErrorInvalidValue;
  return verify_traversal(plan, trees, target, draft, out, stream);
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace specula
