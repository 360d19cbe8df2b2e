// only sm_90a
#include <specula/cuda/device/tree_attention_wgmma.cuh>

using namespace specula::cuda;

template <class Element, int kHead>
cudaError_t use(TreeAttentionPlan* plan, const TreeAttentionCapacity& capacity,
                const TreeAttentionArgs<Element, Float8E4M3>& args, void* workspace) {
  const cudaError_t error = make_tree_attention_wgmma_plan<Element, kHead, Float8E4M3>(plan, capacity, 0);
  return error ? error : tree_attention_wgmma<Element, kHead>(*plan, args, workspace, nullptr);
}
template cudaError_t use<BFloat16, 128>(TreeAttentionPlan*, const TreeAttentionCapacity&,
                                        const TreeAttentionArgs<BFloat16, Float8E4M3>&, void*);
template cudaError_t use<Half, 64>(TreeAttentionPlan*, const TreeAttentionCapacity&,
                                   const TreeAttentionArgs<Half, Float8E4M3>&, void*);
