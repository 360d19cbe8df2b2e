// Growth of proposals.
#include <specula/cuda/device/grow.cuh>

namespace specula {
namespace cuda {
template cudaError_t make_dynamic_tree_plan<BFloat16>(DynamicTreePlan*, const DynamicTreeCapacity&, int);
template cudaError_t dynamic_tree_step(const DynamicTreePlan&, int, const Roots&, const DraftRows<BFloat16>&,
                                       const DraftLevels&, void*, cudaStream_t);
template cudaError_t make_cape_plan<BFloat16>(CapePlan*, const CapeCapacity&, int);
template cudaError_t cape_step(const CapePlan&, int, const Roots&, const DraftRows<BFloat16>&,
                               const CapeSpine&, void*, cudaStream_t);
}  // namespace cuda
}  // namespace specula
