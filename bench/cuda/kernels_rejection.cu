// SPDX-License-Identifier: MIT
// Rejection with drafts of logits.
#include <specula/cuda/api/verify.cuh>

#include "rule_plans.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> rejection_kernels() {
  using Draft = device::LogitsDraft<Element>;
  return comparing_kernels<device::RejectionPlan<Element, Draft>, device::detail::RejectionRule, Element>();
}

SPECULA_FOR_ELEMENTS(rejection_kernels);

}  // namespace specula_bench
