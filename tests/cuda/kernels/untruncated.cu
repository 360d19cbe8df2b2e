// SPDX-License-Identifier: MIT
// at most 15500 instructions for sm_90a: verify_kernel
// at most 6500 instructions for sm_90a: sample_kernel
#include <specula/cuda/api/sample.cuh>
#include <specula/cuda/api/verify.cuh>

using namespace specula::cuda;

cudaError_t use(Untruncated<RejectionPlan<BFloat16, LogitsDraft<BFloat16>>>* plan, const VerifyCapacity& capacity,
                const Trees& trees, const TargetRows<BFloat16>& target, const LogitsDraft<BFloat16>& draft,
                const VerifyResults& out) {
  const cudaError_t error = make_verify_plan(plan, capacity, 0);
  return error ? error : verify_trees(*plan, trees, target, draft, out, nullptr);
}
cudaError_t use(Untruncated<SamplePlan<BFloat16>>* plan, const SampleArgs<BFloat16>& args) {
  const cudaError_t error = make_sample_plan(plan, 1, 1, 1, 0);
  return error ? error : sample(*plan, args, nullptr);
}
