// SPDX-License-Identifier: MIT
#include <specula/cuda/api/max_gram.cuh>

using namespace specula::cuda;

cudaError_t use(const MaxGramPlan& plan, const MaxGramBatch& batch) { return max_gram(plan, batch, nullptr); }
