// SPDX-License-Identifier: MIT
#include <specula/cuda/api/verify.cuh>

using namespace specula::cuda;

using Draft = LogitsDraft<BFloat16>;

cudaError_t use(TraversalPlan<BFloat16, Draft>* plan, BlockPlan<BFloat16, Draft>* block,
                const VerifyCapacity& capacity, const Trees& trees, const TargetRows<BFloat16>& target,
                const Draft& draft, const VerifyResults& out) {
  cudaError_t error = make_verify_plan(plan, capacity, 0);
  if (!error) error = verify_trees(*plan, trees, target, draft, out, nullptr);
  if (!error) error = make_verify_plan(block, capacity, 0);  // the same kernel
  return error ? error : verify_trees(*block, trees, target, draft, out, nullptr);
}
