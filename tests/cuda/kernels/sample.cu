// SPDX-License-Identifier: MIT
// at most 13000 instructions for sm_90a: sample_kernel
#include <specula/cuda/api/sample.cuh>

using namespace specula::cuda;

cudaError_t use(SamplePlan<BFloat16>* plan, const SampleArgs<BFloat16>& args) {
  const cudaError_t error = make_sample_plan(plan, 1, 1, 1, 0);
  return error ? error : sample(*plan, args, nullptr);
}
