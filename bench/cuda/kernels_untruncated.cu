// SPDX-License-Identifier: MIT
// Rejection and sampling by plans without truncation.
#include <specula/cuda/api/verify.cuh>

#include "rule_plans.cuh"

namespace specula_bench {

RuleKernels<device::BFloat16> untruncated_kernels() {
  using Plan =
      device::Untruncated<device::RejectionPlan<device::BFloat16, device::LogitsDraft<device::BFloat16>>>;
  using Rule = device::detail::WithoutCuts<device::detail::RejectionRule>;
  return comparing_kernels<Plan, Rule, device::BFloat16>();
}
cudaError_t plan_sample(UntruncatedSamplePlan* plan, int rows, int draws, int vocab, int device) {
  return device::make_sample_plan(plan, rows, draws, vocab, device);
}
cudaError_t run_sample(const UntruncatedSamplePlan& plan, const device::SampleArgs<device::BFloat16>& args,
                       cudaStream_t stream) {
  return device::sample(plan, args, stream);
}

}  // namespace specula_bench
