// Traversal, and block verification, which is its kernel.
#include <specula/cuda/device/verify_block.cuh>
#include <specula/cuda/device/verify_traversal.cuh>

#include "verification.cuh"

namespace specula_bench {

template <class Element>
RuleKernels<Element> traversal_kernels() {
  return {device::make_traversal_plan<Element, device::LogitsDraft<Element>>,
          device::verify_traversal<Element, device::LogitsDraft<Element>>};
}
template <class Element>
RuleKernels<Element> block_kernels() {
  return {device::make_block_plan<Element, device::LogitsDraft<Element>>,
          device::verify_block<Element, device::LogitsDraft<Element>>};
}

SPECULA_FOR_ELEMENTS(traversal_kernels);
SPECULA_FOR_ELEMENTS(block_kernels);

}  // namespace specula_bench
