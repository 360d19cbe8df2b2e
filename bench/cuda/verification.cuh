// The verification rules and sampling as tables of functions: a file a rule holds the kernels, so that they
// are compiled side by side and once.
#pragma once

#include <cuda_runtime.h>

#include <specula/cuda/device/sample.cuh>
#include <specula/cuda/device/trees.cuh>
#include <specula/cuda/device/verify.cuh>

namespace specula_bench {

namespace device = specula::cuda;

template <class Element>
struct RuleKernels {
  cudaError_t (*plan)(device::VerifyPlan*, const device::VerifyCapacity&, int device);
  cudaError_t (*run)(const device::VerifyPlan&, const device::Trees&, const device::TargetRows<Element>&,
                     const device::LogitsDraft<Element>&, const device::Verdicts&, cudaStream_t);
};

/// Instantiates `function`, RuleKernels<Element>(), for the elements of logits.
#define SPECULA_FOR_ELEMENTS(function)           \
  template RuleKernels<float> function();        \
  template RuleKernels<device::Half> function(); \
  template RuleKernels<device::BFloat16> function()

template <class Element>
RuleKernels<Element> greedy_kernels();
template <class Element>
RuleKernels<Element> sample_and_match_kernels();
template <class Element>
RuleKernels<Element> rejection_kernels();
template <class Element>
RuleKernels<Element> traversal_kernels();
template <class Element>
RuleKernels<Element> block_kernels();

template <class Element>
cudaError_t plan_sample(device::SamplePlan*, int rows, int draws, int vocab, int device);
template <class Element>
cudaError_t run_sample(const device::SamplePlan&, const device::SampleArgs<Element>&, cudaStream_t);

/// Rejection with the other forms of a draft, rows of floats.
template <class Draft>
struct DraftKernels {
  static cudaError_t plan(device::VerifyPlan*, const device::VerifyCapacity&, int device);
  static cudaError_t run(const device::VerifyPlan&, const device::Trees&, const device::TargetRows<float>&,
                         const Draft&, const device::Verdicts&, cudaStream_t);
};

}  // namespace specula_bench
