// SPDX-License-Identifier: MIT
#include "pieces.hpp"

#include <algorithm>

namespace specula_train {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

struct PiecesFunction : Function<PiecesFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& inputs, const Tensor& weight,
                        std::int64_t rows, const PieceLoss* loss, bool gradients, bool weight_learns) {
    auto sum = torch::zeros({}, inputs.options().dtype(torch::kFloat32));
    tensor_list of_inputs;
    auto of_weight = torch::zeros({}, weight.options().dtype(torch::kFloat32));
    for (std::int64_t first = 0; first < inputs.size(0); first += rows) {
      torch::AutoGradMode mode(gradients);
      const auto piece =
          inputs.detach().narrow(0, first, std::min(rows, inputs.size(0) - first)).requires_grad_(gradients);
      const auto own_weight = weight.detach().requires_grad_(gradients && weight_learns);
      const auto value = (*loss)(piece, own_weight, first);
      sum += value.detach();
      if (!gradients) continue;
      tensor_list of{piece};
      if (weight_learns) of.push_back(own_weight);
      const auto found = torch::autograd::grad({value}, of, {}, {}, false, /*allow_unused=*/true);
      of_inputs.push_back(found[0].defined() ? found[0] : torch::zeros_like(piece));
      if (weight_learns && found[1].defined()) of_weight = of_weight + found[1];
    }
    if (gradients)
      context->save_for_backward(
          {torch::cat(of_inputs),
           weight_learns ? of_weight.expand_as(weight).to(weight.scalar_type()) : Tensor()});
    return sum;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto times = [&](const Tensor& own) { return own * gradients[0].to(own.scalar_type()); };
    return {times(saved[0]), saved[1].defined() ? times(saved[1]) : Tensor(), Tensor(), Tensor(), Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor sum_in_pieces(const Tensor& inputs, const Tensor& weight, std::int64_t columns, const PieceLoss& loss,
                     std::int64_t numbers) {
  constexpr std::int64_t kMultiple = 128;  // as learned_predictions() has it
  auto rows = std::max<std::int64_t>(1, numbers / columns);
  if (rows > kMultiple) rows -= rows % kMultiple;
  if (inputs.size(0) <= rows) return loss(inputs, weight, 0);
  const bool gradients = torch::GradMode::is_enabled() && (inputs.requires_grad() || weight.requires_grad());
  return PiecesFunction::apply(inputs, weight, rows, &loss, gradients, weight.requires_grad());
}

}  // namespace specula_train
