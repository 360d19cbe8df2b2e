// SPDX-License-Identifier: MIT
#include <specula/cuda/api/grow.cuh>

using namespace specula::cuda;

cudaError_t use(DynamicTreePlan<BFloat16>* plan, const DynamicTreeCapacity& capacity, const Roots& roots,
                const DraftRows<BFloat16>& rows, const DraftLevels& levels, const GrownTrees& trees,
                void* workspace) {
  cudaError_t error = make_dynamic_tree_plan(plan, capacity, 0);
  if (!error)
    error = dynamic_tree_step(*plan, 1, roots, rows, levels, workspace, workspace_bytes(*plan), nullptr);
  return error
             ? error
             : dynamic_tree_rerank(*plan, roots, trees, nullptr, workspace, workspace_bytes(*plan), nullptr);
}
cudaError_t use(CapePlan<BFloat16>* plan, const CapeCapacity& capacity, const Roots& roots,
                const DraftRows<BFloat16>& rows, const CapeSpine& spine, const GrownTrees& trees,
                void* workspace) {
  cudaError_t error = make_cape_plan(plan, capacity, 0);
  if (!error) error = cape_step(*plan, 0, roots, rows, spine, workspace, workspace_bytes(*plan), nullptr);
  return error ? error
               : cape_finish(*plan, roots, trees, nullptr, workspace, workspace_bytes(*plan), nullptr);
}
cudaError_t use(const std::int32_t* begin, const NodeId* parent, const TreeLinks& out) {
  return tree_links(1, 64, begin, parent, out, nullptr);
}
cudaError_t use(const Proposals& in, const SelectedNodes& out) { return select_nodes(1, in, out, nullptr); }
