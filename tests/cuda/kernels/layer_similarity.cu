// SPDX-License-Identifier: MIT
#include <specula/cuda/api/layer_similarity.cuh>

using namespace specula::cuda;

cudaError_t use(const SimilarityPlan& plan, const BFloat16* x, const BFloat16* y, const BFloat16* const* xs,
                const BFloat16* const* ys, const SimilarityTokens& tokens, SimilaritySum* sums, float* out) {
  cudaError_t error = measure_similarity(plan, x, y, tokens, sums, nullptr);
  if (!error) error = measure_similarity_of_layers(plan, xs, ys, tokens, sums, nullptr);
  return error ? error : similarity_means(plan, sums, out, nullptr, nullptr);
}
