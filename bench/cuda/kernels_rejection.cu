// Rejection with drafts of logits.
#include <specula/cuda/device/verify_rejection.cuh>

#include "verification.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> rejection_kernels() {
  return {device::make_rejection_plan<Element, device::LogitsDraft<Element>>,
          device::verify_rejection<Element, device::LogitsDraft<Element>>};
}

SPECULA_FOR_ELEMENTS(rejection_kernels);

}  // namespace specula_bench
