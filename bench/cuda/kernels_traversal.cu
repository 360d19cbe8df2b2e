// Traversal, and block verification, which is its kernel.
#include <specula/cuda/device/verify_block.cuh>
#include <specula/cuda/device/verify_traversal.cuh>

#include "rule_plans.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> traversal_kernels() {
  using Draft = device::LogitsDraft<Element>;
  return comparing_kernels<device::TraversalPlan<Element, Draft>, device::detail::TraversalRule, Element,
                           device::make_traversal_plan<Element, Draft>,
                           device::verify_traversal<Element, Draft>>();
}
template <class Element>
RuleKernels<Element> block_kernels() {
  using Draft = device::LogitsDraft<Element>;
  return comparing_kernels<device::BlockPlan<Element, Draft>, device::detail::TraversalRule, Element,
                           device::make_block_plan<Element, Draft>, device::verify_block<Element, Draft>>();
}

SPECULA_FOR_ELEMENTS(traversal_kernels);
SPECULA_FOR_ELEMENTS(block_kernels);

}  // namespace specula_bench
