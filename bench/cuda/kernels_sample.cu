// SPDX-License-Identifier: MIT
// Sampling.
#include "rule_plans.cuh"

namespace specula_bench {

template <class Element>
cudaError_t plan_sample(device::SamplePlan<Element>* plan, int rows, int draws, int vocab, int device) {
  return device::make_sample_plan(plan, rows, draws, vocab, device);
}
template <class Element>
cudaError_t run_sample(const device::SamplePlan<Element>& plan, const device::SampleArgs<Element>& args,
                       cudaStream_t stream) {
  return device::sample(plan, args, stream);
}
template <class Element>
cudaError_t reshape_sample(device::SamplePlan<Element>* plan, const Geometry& wanted, bool* fits) {
  return reshape(
      device::detail::sample_kernel<Element>,
      [&](const device::detail::ScanSize& size, int warps) {
        return device::detail::sample_bytes<device::DeviceCluster>(size, warps, plan->draws);
      },
      wanted, &plan->scan, fits);
}

#define SPECULA_SAMPLE(Element)                                                                           \
  template cudaError_t plan_sample(device::SamplePlan<Element>*, int, int, int, int);                     \
  template cudaError_t run_sample(const device::SamplePlan<Element>&, const device::SampleArgs<Element>&, \
                                  cudaStream_t);                                                          \
  template cudaError_t reshape_sample(device::SamplePlan<Element>*, const Geometry&, bool*)

SPECULA_SAMPLE(float);
SPECULA_SAMPLE(device::Half);
SPECULA_SAMPLE(device::BFloat16);

}  // namespace specula_bench
