// Greedy and sample-and-match.
#include <specula/cuda/device/verify_greedy.cuh>
#include <specula/cuda/device/verify_sample_and_match.cuh>

#include "verification.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> greedy_kernels() {
  return {device::make_greedy_plan<Element>,
          [](const device::VerifyPlan& plan, const device::Trees& trees,
             const device::TargetRows<Element>& target, const device::LogitsDraft<Element>&,
             const device::Verdicts& out,
             cudaStream_t stream) { return device::verify_greedy(plan, trees, target, out, stream); }};
}
template <class Element>
RuleKernels<Element> sample_and_match_kernels() {
  return {device::make_sample_and_match_plan<Element>,
          [](const device::VerifyPlan& plan, const device::Trees& trees,
             const device::TargetRows<Element>& target, const device::LogitsDraft<Element>&,
             const device::Verdicts& out, cudaStream_t stream) {
            return device::verify_sample_and_match(plan, trees, target, out, stream);
          }};
}

SPECULA_FOR_ELEMENTS(greedy_kernels);
SPECULA_FOR_ELEMENTS(sample_and_match_kernels);

}  // namespace specula_bench
