// SPDX-License-Identifier: MIT
// Traversal, and block verification, which is its kernel.
#include <specula/cuda/api/verify.cuh>

#include "rule_plans.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> traversal_kernels() {
  using Draft = device::LogitsDraft<Element>;
  return comparing_kernels<device::TraversalPlan<Element, Draft>, device::detail::TraversalRule, Element>();
}
template <class Element>
RuleKernels<Element> block_kernels() {
  using Draft = device::LogitsDraft<Element>;
  return comparing_kernels<device::BlockPlan<Element, Draft>, device::detail::TraversalRule, Element>();
}

SPECULA_FOR_ELEMENTS(traversal_kernels);
SPECULA_FOR_ELEMENTS(block_kernels);

}  // namespace specula_bench
