// Sampling.
#include "verification.cuh"

namespace specula_bench {

template <class Element>
cudaError_t plan_sample(device::SamplePlan* plan, int rows, int draws, int vocab, int device) {
  return device::make_sample_plan<Element>(plan, rows, draws, vocab, device);
}
template <class Element>
cudaError_t run_sample(const device::SamplePlan& plan, const device::SampleArgs<Element>& args,
                       cudaStream_t stream) {
  return device::sample(plan, args, stream);
}

template cudaError_t plan_sample<float>(device::SamplePlan*, int, int, int, int);
template cudaError_t plan_sample<device::Half>(device::SamplePlan*, int, int, int, int);
template cudaError_t plan_sample<device::BFloat16>(device::SamplePlan*, int, int, int, int);
template cudaError_t run_sample(const device::SamplePlan&, const device::SampleArgs<float>&, cudaStream_t);
template cudaError_t run_sample(const device::SamplePlan&, const device::SampleArgs<device::Half>&,
                                cudaStream_t);
template cudaError_t run_sample(const device::SamplePlan&, const device::SampleArgs<device::BFloat16>&,
                                cudaStream_t);

}  // namespace specula_bench
