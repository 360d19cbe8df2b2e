#include <specula/cuda/device/sample.cuh>

using namespace specula::cuda;

cudaError_t use(SamplePlan* plan, const SampleArgs<BFloat16>& args) {
  const cudaError_t error = make_sample_plan<BFloat16>(plan, 1, 1, 1, 0);
  return error ? error : sample(*plan, args, nullptr);
}
