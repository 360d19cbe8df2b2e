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

template RuleKernels<float> traversal_kernels();
template RuleKernels<device::Half> traversal_kernels();
template RuleKernels<device::BFloat16> traversal_kernels();
template RuleKernels<float> block_kernels();
template RuleKernels<device::Half> block_kernels();
template RuleKernels<device::BFloat16> block_kernels();

}  // namespace specula_bench
