// SPDX-License-Identifier: MIT
// HASS's top-K distillation loss of draft logits against the target's.
#pragma once

#include <torch/torch.h>

#include <losses/top_k_distillation.hpp>

namespace specula_train {

/// The total loss of each row: logits (n, V) of the draft and of the target -> (n) float32. Only the draft's
/// have a gradient. On a CPU it is specula::TopKDistillation, which computes the gradient together with the
/// loss.
torch::Tensor distillation(const torch::Tensor& draft_logits, const torch::Tensor& target_logits,
                           const specula::TopKDistillation& loss);

namespace plain {
/// Which of equally likely tokens are among the likeliest K is not defined; on a CPU, above, the lower ones.
torch::Tensor distillation(const torch::Tensor& draft_logits, const torch::Tensor& target_logits,
                           const specula::TopKDistillation& loss);
}  // namespace plain

}  // namespace specula_train
