// SPDX-License-Identifier: MIT
#include <specula/cuda/api/layer_similarity.cuh>

#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // Once: room for 2 sequences, 3 layers of width 4096, 2048 tokens a call. Sums begin as zeros.
  constexpr int kSequences = 2, kLayers = 3, kHidden = 4096;
  SimilarityPlan plan;
  if (make_similarity_plan(&plan, {2048, kSequences, kLayers, kHidden}, 0) != cudaSuccess) return 1;
  auto* const sums = zeros<SimilaritySum>(kSequences * kLayers);

  // A prefill of 5 and 3 tokens. The engine has the residual stream before and after a layer's attention,
  // (tokens, hidden) in bf16: here ones, so that each cosine is 1.
  const std::int32_t* const begin = on_device<std::int32_t>({0, 5, 8});
  const BFloat16* const ones = on_device(std::vector<BFloat16>(8 * kHidden, BFloat16{0x3F80}));
  for (int layer = 0; layer < kLayers; ++layer) {
    const SimilarityTokens tokens{begin, kHidden, kHidden, layer};
    if (measure_similarity(plan, ones, ones, tokens, sums, nullptr) != cudaSuccess) return 1;
  }

  // After the prompts: the means, (B, L). Sequence 1 has ended: its sums are reset for the next prompt in its
  // slot.
  float* const means = zeros<float>(kSequences * kLayers);
  if (similarity_means(plan, sums, means, on_device<std::int32_t>({0, 1}), nullptr) != cudaSuccess) return 1;
  for (const float mean : to_host(means, kSequences * kLayers))
    std::printf("%.3f\n", static_cast<double>(mean));
}
