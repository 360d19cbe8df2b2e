// One batch's gradient, on all cores.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace specula_train {

using LossFunction = std::function<torch::Tensor(const torch::Tensor& rows)>;

/// Sets every parameter's gradient to that of loss(rows), a mean over the rows, and returns the loss.
///
/// On a CPU the rows are shared out to one thread a core, and each runs its part from front to back
/// alone. The threads meet once a step; splitting every single operation instead makes them meet
/// hundreds of times, which is slow, and very slow on a machine that has other work too.
/// The parts are added in a fixed order.
double compute_gradients(const LossFunction& loss, const torch::Tensor& rows,
                         const std::vector<torch::Tensor>& parameters);

}  // namespace specula_train
