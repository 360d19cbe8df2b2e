// SPDX-License-Identifier: MIT
// Rejection with drafts of other forms: a file each holds the kernel of one.
#pragma once

#include <specula/cuda/api/verify.cuh>

#include "rule_plans.cuh"

namespace specula_bench {

template <class Draft>
cudaError_t DraftKernels<Draft>::plan(RulePlan* plan, const device::VerifyCapacity& capacity, int device) {
  device::RejectionPlan<device::BFloat16, Draft> made;
  const cudaError_t error = device::make_verify_plan(&made, capacity, device);
  if (error == cudaSuccess) *plan = without_type(made);
  return error;
}
template <class Draft>
cudaError_t DraftKernels<Draft>::run(const RulePlan& plan, const device::Trees& trees,
                                     const device::TargetRows<device::BFloat16>& target, const Draft& draft,
                                     const device::VerifyResults& out, cudaStream_t stream) {
  return device::verify_trees(verifier_plan_of<device::RejectionPlan<device::BFloat16, Draft>>(plan), trees,
                              target, draft, out, stream);
}

}  // namespace specula_bench
