// SPDX-License-Identifier: MIT
#include <specula/cuda/api/top_k_distillation.cuh>

using namespace specula::cuda;

cudaError_t use(DistillationPlan<BFloat16, BFloat16, BFloat16>* plan, const DistillationCapacity& capacity,
                const TopKDistillation& loss, const DistillationRows<BFloat16, BFloat16, BFloat16>& rows) {
  const cudaError_t error = make_distillation_plan(plan, capacity, loss, 0);
  return error ? error : top_k_distillation(*plan, rows, nullptr);
}
