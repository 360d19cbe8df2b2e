// SPDX-License-Identifier: MIT
// Growth of proposals.
#include <specula/cuda/api/grow.cuh>

namespace specula {
namespace cuda {
template cudaError_t make_dynamic_tree_plan(DynamicTreePlan<BFloat16>*, const DynamicTreeCapacity&, int);
template cudaError_t dynamic_tree_step(const DynamicTreePlan<BFloat16>&, int, const Roots&,
                                       const DraftRows<BFloat16>&, const DraftLevels&, void*, std::size_t,
                                       cudaStream_t);
template cudaError_t make_cape_plan(CapePlan<BFloat16>*, const CapeCapacity&, int);
template cudaError_t cape_step(const CapePlan<BFloat16>&, int, const Roots&, const DraftRows<BFloat16>&,
                               const CapeSpine&, void*, std::size_t, cudaStream_t);
}  // namespace cuda
}  // namespace specula
