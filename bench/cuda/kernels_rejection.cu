// Rejection with drafts of logits.
#include <specula/cuda/device/verify_rejection.cuh>

#include "rule_plans.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> rejection_kernels() {
  using Draft = device::LogitsDraft<Element>;
  return comparing_kernels<device::RejectionPlan<Element, Draft>, device::detail::RejectionRule, Element,
                           device::make_rejection_plan<Element, Draft>,
                           device::verify_rejection<Element, Draft>>();
}

SPECULA_FOR_ELEMENTS(rejection_kernels);

}  // namespace specula_bench
