// SPDX-License-Identifier: MIT
// From the plans of rules to plans whose type is gone, and back: for the files that hold kernels.
#pragma once

#include <specula/cuda/api/verify.cuh>
#include <specula/cuda/api/verify_matching.cuh>

#include "verification.cuh"

namespace specula_bench {

template <class Rule, class Element, class Draft>
RulePlan without_type(const device::VerifyPlan<Rule, Element, Draft>& plan) {
  RulePlan out;
  out.sequences = plan.sequences;
  out.max_nodes = plan.max_nodes;
  out.width = plan.width;
  out.verifier = plan.scan;
  return out;
}
template <class Plan>
Plan verifier_plan_of(const RulePlan& plan) {
  Plan out;
  out.sequences = plan.sequences;
  out.max_nodes = plan.max_nodes;
  out.width = plan.width;
  out.scan = plan.verifier;
  out.odd_rows = plan.odd_rows;
  return out;
}

/// Another geometry for `kernel`, of whose blocks bytes(size, warps) is the shared memory.
template <class Kernel, class Bytes>
cudaError_t reshape(Kernel* kernel, Bytes bytes, const Geometry& wanted, Geometry* plan, bool* fits) {
  *fits = false;
  int now = 0;
  device::detail::DeviceLimits limits;
  cudaError_t error = cudaGetDevice(&now);
  if (error == cudaSuccess) error = device::detail::device_limits(now, &limits);
  Geometry out = wanted;
  out.shared_bytes = bytes(out.size, out.threads / 32);
  if (error != cudaSuccess || out.shared_bytes > static_cast<std::size_t>(limits.shared_bytes)) return error;
  error = device::detail::prepare(kernel, out.shared_bytes, &out.cluster);
  if (error == cudaSuccess)
    error = device::detail::fit_cluster(kernel, 1, out.threads, out.shared_bytes, &out.cluster);
  if (error != cudaSuccess || out.cluster != wanted.cluster) return error;
  *plan = out;
  *fits = true;
  return cudaSuccess;
}

/// Another geometry for the launch that verifies.
template <class Rule, class Element, class Draft>
cudaError_t reshape_verifier(RulePlan* plan, const Geometry& wanted, bool* fits) {
  return reshape(
      device::detail::verify_kernel<Rule, Element, Draft>,
      [&](const device::detail::ScanSize& size, int warps) {
        return device::detail::SequenceVerifier<Rule, device::DeviceCluster, Element, Draft>::shared_bytes(
            size, plan->max_nodes, warps);
      },
      wanted, &plan->verifier, fits);
}

/// The functions of a rule that compares p with q, for its Plan.
template <class Plan, class Rule, class Element>
RuleKernels<Element> comparing_kernels() {
  using Draft = device::LogitsDraft<Element>;
  RuleKernels<Element> out;
  out.plan = [](RulePlan* plan, const device::VerifyCapacity& capacity, int device) {
    Plan made;
    const cudaError_t error = device::make_verify_plan(&made, capacity, device);
    if (error == cudaSuccess) *plan = without_type(made);
    return error;
  };
  out.run = [](const RulePlan& plan, const device::Trees& trees, const device::TargetRows<Element>& target,
               const Draft& draft, const device::VerifyResults& out_to, const device::Workspace&,
               cudaStream_t stream) {
    return device::verify_trees(verifier_plan_of<Plan>(plan), trees, target, draft, out_to, stream);
  };
  out.reshape = [](RulePlan* plan, bool, const Geometry& wanted, bool* fits) {
    return reshape_verifier<Rule, Element, Draft>(plan, wanted, fits);
  };
  return out;
}

/// The functions of a rule that may ask all nodes at once.
template <class Rule, class Element>
RuleKernels<Element> matching_kernels() {
  using Plan = device::MatchingPlan<Rule, Element>;
  using Draft = device::ChosenDraft;
  RuleKernels<Element> out;
  out.plan = [](RulePlan* plan, const device::VerifyCapacity& capacity, int device) {
    Plan made;
    const cudaError_t error = device::make_verify_plan(&made, capacity, device);
    if (error != cudaSuccess) return error;
    *plan = without_type(made.verifier);
    plan->all_nodes = made.all_nodes;
    plan->nodes = made.nodes;
    plan->part_bytes = device::part_bytes(made);
    plan->counter_bytes = device::counter_bytes(made);
    return error;
  };
  out.run = [](const RulePlan& plan, const device::Trees& trees, const device::TargetRows<Element>& target,
               const device::LogitsDraft<Element>&, const device::VerifyResults& out_to,
               const device::Workspace& workspace, cudaStream_t stream) {
    Plan typed;
    typed.verifier = verifier_plan_of<decltype(typed.verifier)>(plan);
    typed.all_nodes = plan.all_nodes;
    typed.nodes = plan.nodes;
    return device::verify_trees(typed, trees, target, out_to, workspace, stream);
  };
  out.reshape = [](RulePlan* plan, bool chains, const Geometry& wanted, bool* fits) {
    if (chains || !plan->all_nodes) return reshape_verifier<Rule, Element, Draft>(plan, wanted, fits);
    return reshape(
        device::detail::verify_nodes_kernel<Rule, Element>,
        [&](const device::detail::ScanSize& size, int warps) {
          return device::detail::nodes_bytes<device::DeviceCluster>(size, plan->max_nodes, warps);
        },
        wanted, &plan->nodes, fits);
  };
  return out;
}

}  // namespace specula_bench
