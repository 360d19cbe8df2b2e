// SPDX-License-Identifier: MIT
// only sm_90a
#include <specula/cuda/api/tree_attention_wgmma.cuh>

using namespace specula::cuda;

cudaError_t use(TreeAttentionPlan<BFloat16, 128>* plan, const TreeAttentionCapacity& capacity,
                const TreeAttentionArgs<BFloat16>& args, const Workspace& workspace) {
  const cudaError_t error = make_tree_attention_wgmma_plan(plan, capacity, 0);
  return error ? error : tree_attention_wgmma(*plan, args, workspace, nullptr);
}
