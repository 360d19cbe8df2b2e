// SPDX-License-Identifier: MIT
#include <specula/cuda/api/top_k_distillation.cuh>

#include <cstdio>

#include "on_device.cuh"

using namespace specula::cuda;

int main() {
  // Outside of graph capture: rows of a training batch, and the loss.
  constexpr int kRows = 3, kVocab = 32000;
  const TopKDistillation what{/*k*/ 10, /*weight*/ 1.0, /*cross_entropy_weight*/ 0.1};
  DistillationPlan<BFloat16, BFloat16, BFloat16> plan;
  if (make_distillation_plan(&plan, {kRows, kVocab}, what, /*device*/ 0) != cudaSuccess) return 1;

  // (R, V) logits of target and draft; the gradient overwrites the draft's. A row's scale is 0 for a token that
  // is masked out, else 1 over the number of tokens that are not.
  const BFloat16* const target = zeros<BFloat16>(kRows * kVocab);
  BFloat16* const draft = zeros<BFloat16>(kRows * kVocab);
  const float* const scale = on_device<float>({0.5f, 0.5f, 0.0f});
  float* const loss = zeros<float>(2 * kRows);
  Status* const status = zeros<Status>(kRows);
  const DistillationRows<BFloat16, BFloat16, BFloat16> rows{target, kVocab, draft, kVocab, draft,
                                                            kVocab, scale,  loss,  status};
  if (top_k_distillation(plan, rows, nullptr) != cudaSuccess) return 1;
  const std::vector<float> losses = to_host(loss, 2 * kRows);
  std::printf("cross entropy %.3f, of the 10 likeliest %.5f\n", static_cast<double>(losses[0]),
              static_cast<double>(losses[1]));
}
