#include <specula/cuda/device/tree_attention.cuh>

using namespace specula::cuda;

cudaError_t use(TreeAttentionPlan* plan, const TreeAttentionCapacity& capacity,
                const TreeAttentionArgs<Half, Float8E4M3>& args, void* workspace) {
  const cudaError_t error = make_tree_attention_plan<Half, 64, Float8E4M3>(plan, capacity, 0);
  return error ? error : tree_attention<Half, 64>(*plan, args, workspace, nullptr);
}
