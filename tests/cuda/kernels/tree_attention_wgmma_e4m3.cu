// SPDX-License-Identifier: MIT
// only sm_90a
#include <specula/cuda/api/tree_attention_wgmma.cuh>

using namespace specula::cuda;

template <class Element, int kHead>
cudaError_t use(TreeAttentionPlan<Element, kHead, Float8E4M3>* plan, const TreeAttentionCapacity& capacity,
                const TreeAttentionArgs<Element, Float8E4M3>& args, const Workspace& workspace) {
  const cudaError_t error = make_tree_attention_wgmma_plan(plan, capacity, 0);
  return error ? error : tree_attention_wgmma(*plan, args, workspace, nullptr);
}
template cudaError_t use<BFloat16, 128>(TreeAttentionPlan<BFloat16, 128, Float8E4M3>*,
                                        const TreeAttentionCapacity&,
                                        const TreeAttentionArgs<BFloat16, Float8E4M3>&, const Workspace&);
template cudaError_t use<Half, 64>(TreeAttentionPlan<Half, 64, Float8E4M3>*, const TreeAttentionCapacity&,
                                   const TreeAttentionArgs<Half, Float8E4M3>&, const Workspace&);
