// Rejection with drafts of logits.
#include <specula/cuda/device/verify_rejection.cuh>

#include "verification.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> rejection_kernels() {
  return {device::make_rejection_plan<Element, device::LogitsDraft<Element>>,
          device::verify_rejection<Element, device::LogitsDraft<Element>>};
}

template RuleKernels<float> rejection_kernels();
template RuleKernels<device::Half> rejection_kernels();
template RuleKernels<device::BFloat16> rejection_kernels();

}  // namespace specula_bench
