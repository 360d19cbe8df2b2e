// SPDX-License-Identifier: MIT
// at most 25000 instructions for sm_90a: verify_kernel
#include <specula/cuda/api/verify.cuh>

using namespace specula::cuda;

cudaError_t use(RejectionPlan<BFloat16, LogitsDraft<BFloat16>>* plan, const VerifyCapacity& capacity,
                const Trees& trees, const TargetRows<BFloat16>& target, const LogitsDraft<BFloat16>& draft,
                const VerifyResults& out) {
  const cudaError_t error = make_verify_plan(plan, capacity, 0);
  return error ? error : verify_trees(*plan, trees, target, draft, out, nullptr);
}
