// SPDX-License-Identifier: MIT
#include <specula/cuda/api/tree_attention_mma.cuh>

using namespace specula::cuda;

cudaError_t use(TreeAttentionPlan<BFloat16, 64>* plan, const TreeAttentionCapacity& capacity,
                const TreeAttentionArgs<BFloat16>& args, const Workspace& workspace) {
  const cudaError_t error = make_tree_attention_mma_plan(plan, capacity, 0);
  return error ? error : tree_attention_mma(*plan, args, workspace, nullptr);
}
