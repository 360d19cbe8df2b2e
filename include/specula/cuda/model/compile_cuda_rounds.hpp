// SPDX-License-Identifier: MIT
// Definitions of what Round needs of CudaDevice: include this in place of compile_cuda_device.hpp in the file
// of a program that nvcc compiles. The kernels of sampling, growth and verification take a minute.
#pragma once

#include "specula/cuda/model/compile_cuda_device.hpp"

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)

#include "specula/cuda/api/grow_cape.cuh"
#include "specula/cuda/api/grow_dynamic_tree.cuh"
#include "specula/cuda/api/sample.cuh"
#include "specula/cuda/api/verify.cuh"
#include "specula/cuda/api/verify_matching.cuh"

namespace specula::cuda {

void CudaDevice::make_plan(SamplePlan<float>& plan, int rows, int draws, int vocab) {
  detail::expect(make_sample_plan(&plan, rows, draws, vocab, impl_->device), "a plan of sampling");
}
void CudaDevice::make_plan(CapePlan<float>& plan, const CapeCapacity& capacity) {
  detail::expect(make_cape_plan(&plan, capacity, impl_->device), "a plan of CAPE");
}
void CudaDevice::make_plan(DynamicTreePlan<float>& plan, const DynamicTreeCapacity& capacity) {
  detail::expect(make_dynamic_tree_plan(&plan, capacity, impl_->device), "a plan of a dynamic tree");
}
template <class Plan>
void CudaDevice::make_plan(Plan& plan, const VerifyCapacity& capacity) {
  detail::expect(make_verify_plan(&plan, capacity, impl_->device), "a plan of verification");
  if constexpr (requires { plan.all_nodes; }) impl_->reserve(part_bytes(plan), counter_bytes(plan));
}
void CudaDevice::draw(const SamplePlan<float>& plan, const SampleArgs<float>& args) {
  detail::expect(sample(plan, args, impl_->stream), "sampling");
}
template <class Plan, class Draft>
void CudaDevice::verify(const Plan& plan, const Trees& trees, const TargetRows<float>& target,
                        const Draft& draft, const VerifyResults& out) {
  if constexpr (requires { plan.all_nodes; })
    detail::expect(verify_trees(plan, trees, target, out, impl_->workspace, impl_->stream), "verification");
  else
    detail::expect(verify_trees(plan, trees, target, draft, out, impl_->stream), "verification");
}
void CudaDevice::grow(const CapePlan<float>& plan, int step, const Roots& roots, const DraftRows<float>& rows,
                      const CapeSpine& out, void* room) {
  detail::expect(cape_step(plan, step, roots, rows, out, room, workspace_bytes(plan), impl_->stream),
                 "a step of CAPE");
}
void CudaDevice::grow(const DynamicTreePlan<float>& plan, int level, const Roots& roots,
                      const DraftRows<float>& rows, const DraftLevels& out, void* room) {
  detail::expect(dynamic_tree_step(plan, level, roots, rows, out, room, workspace_bytes(plan), impl_->stream),
                 "a level of a dynamic tree");
}
void CudaDevice::finish(const CapePlan<float>& plan, const Roots& roots, const GrownTrees& out, void* room) {
  detail::expect(cape_finish(plan, roots, out, nullptr, room, workspace_bytes(plan), impl_->stream),
                 "CAPE's proposal");
}
void CudaDevice::finish(const DynamicTreePlan<float>& plan, const Roots& roots, const GrownTrees& out,
                        void* room) {
  detail::expect(dynamic_tree_rerank(plan, roots, out, nullptr, room, workspace_bytes(plan), impl_->stream),
                 "a dynamic tree's proposal");
}

#define SPECULA_ROUND_RULE(draft, ...)                                                       \
  template void CudaDevice::make_plan(__VA_ARGS__& plan, const VerifyCapacity& capacity);    \
  template void CudaDevice::verify(const __VA_ARGS__& plan, const Trees& trees,              \
                                   const TargetRows<float>& target, const draft& draft_rows, \
                                   const VerifyResults& out);
SPECULA_FOR_ROUND_RULES(SPECULA_ROUND_RULE)
#undef SPECULA_ROUND_RULE

template void CudaDevice::run(const detail::ReadText& body);
template void CudaDevice::run(const detail::BeginRound& body);
template void CudaDevice::run(const detail::EndRound& body);

}  // namespace specula::cuda

#endif
