// Definitions of AttentionKernels, for the files that instantiate them.
#pragma once

#include "attention.cuh"

namespace specula_bench {

template <class Element, int kHead>
cudaError_t AttentionKernels<Element, kHead>::plan(device::TreeAttentionPlan* plan,
                                                   const device::TreeAttentionCapacity& capacity,
                                                   int device) {
  return device::make_tree_attention_plan<Element, kHead>(plan, capacity, device);
}
template <class Element, int kHead>
cudaError_t AttentionKernels<Element, kHead>::run(const device::TreeAttentionPlan& plan,
                                                  const device::TreeAttentionArgs<Element>& args,
                                                  void* workspace, cudaStream_t stream) {
  return device::tree_attention<Element, kHead>(plan, args, workspace, stream);
}
template <class Element, int kHead>
cudaError_t AttentionKernels<Element, kHead>::force_rows(device::TreeAttentionPlan* plan, int rows) {
  const int packed = plan->capacity.max_nodes * (plan->capacity.query_heads / plan->capacity.kv_heads);
  return device::detail::with_shape<kHead>(rows, [&](auto shape) {
    using Shape = decltype(shape);
    plan->rows = Shape::kRows;
    plan->row_tiles = device::detail::ceil_div(packed, Shape::kRows);
    plan->threads = Shape::kThreads;
    plan->shared_bytes = Shape::kSharedBytes;
    return device::detail::prepare(device::detail::tree_attention_kernel<Shape, Element>, Shape::kSharedBytes,
                                   1);
  });
}

}  // namespace specula_bench
