// SPDX-License-Identifier: MIT
// The verification rules and sampling as tables of functions: one file per rule holds the kernels, so that
// they are compiled in parallel and once.
#pragma once

#include <cuda_runtime.h>

#include <specula/cuda/api/sample.cuh>
#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/args/trees.cuh>

namespace specula_bench {

namespace device = specula::cuda;

/// Launch geometry.
using Geometry = device::detail::ScanPlan;

/// The plan of a rule, type-erased.
struct RulePlan {
  int sequences = 0, max_nodes = 0, width = 0;
  Geometry verifier;
  bool all_nodes = false;  // of trees that are no chains, in one launch of the geometry `nodes`
  Geometry nodes;
  std::size_t part_bytes = 0, counter_bytes = 0;  // of the workspace
  int odd_rows = 0;                               // as VerifyPlan has it

  /// That of the launch for such proposals.
  const Geometry& geometry(bool chains) const { return all_nodes && !chains ? nodes : verifier; }
  Geometry& geometry(bool chains) { return all_nodes && !chains ? nodes : verifier; }
};

template <class Element>
struct RuleKernels {
  cudaError_t (*plan)(RulePlan*, const device::VerifyCapacity&, int device);
  cudaError_t (*run)(const RulePlan&, const device::Trees&, const device::TargetRows<Element>&,
                     const device::LogitsDraft<Element>&, const device::VerifyResults&,
                     const device::Workspace&, cudaStream_t);
  /// Gives plan->geometry(chains) a cluster, threads, rows and rings other than planned; *fits is false, and
  /// the plan as it was, where the current device has no room for them.
  cudaError_t (*reshape)(RulePlan* plan, bool chains, const Geometry&, bool* fits);
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
/// Rejection by a plan without truncation, rows of BFloat16.
RuleKernels<device::BFloat16> untruncated_kernels();

template <class Element>
cudaError_t plan_sample(device::SamplePlan<Element>*, int rows, int draws, int vocab, int device);
template <class Element>
cudaError_t run_sample(const device::SamplePlan<Element>&, const device::SampleArgs<Element>&, cudaStream_t);
using UntruncatedSamplePlan = device::Untruncated<device::SamplePlan<device::BFloat16>>;
cudaError_t plan_sample(UntruncatedSamplePlan*, int rows, int draws, int vocab, int device);
cudaError_t run_sample(const UntruncatedSamplePlan&, const device::SampleArgs<device::BFloat16>&,
                       cudaStream_t);
/// As RuleKernels::reshape.
template <class Element>
cudaError_t reshape_sample(device::SamplePlan<Element>*, const Geometry&, bool* fits);

/// Rejection with the other forms of a draft, rows of BFloat16: beside probabilities, elements of two sizes.
template <class Draft>
struct DraftKernels {
  static cudaError_t plan(RulePlan*, const device::VerifyCapacity&, int device);
  static cudaError_t run(const RulePlan&, const device::Trees&, const device::TargetRows<device::BFloat16>&,
                         const Draft&, const device::VerifyResults&, cudaStream_t);
};

}  // namespace specula_bench
