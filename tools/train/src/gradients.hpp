// SPDX-License-Identifier: MIT
// The gradient of a batch, on all cores.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace specula_train {

using LossFunction = std::function<torch::Tensor(const torch::Tensor& rows)>;

/// Sets every parameter's gradient to that of loss(rows), a mean over the rows, and returns the loss.
///
/// On a CPU the rows are distributed to one thread per core, and each computes its part alone. The threads
/// synchronise once per step; splitting every operation would synchronise them hundreds of times, which is
/// slow, and very slow on a busy machine. The parts are added in a fixed order.
double compute_gradients(const LossFunction& loss, const torch::Tensor& rows,
                         const std::vector<torch::Tensor>& parameters);

}  // namespace specula_train
