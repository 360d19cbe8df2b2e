// SPDX-License-Identifier: MIT
#include "distillation.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <tuple>
#include <vector>

#include "vector_math.hpp"

namespace specula_train {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

struct DistillationFunction : Function<DistillationFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& draft_in, const Tensor& target_in,
                        std::int64_t k, double weight, double cross_entropy_weight) {
    const specula::TopKDistillation loss{
        .k = static_cast<std::int32_t>(k), .weight = weight, .cross_entropy_weight = cross_entropy_weight};
    const auto draft = draft_in.contiguous(), target = target_in.contiguous();
    const auto size = draft.size(-1), rows = draft.size(0);
    auto gradient = torch::empty_like(draft);
    auto losses = torch::empty({rows}, draft.options().dtype(torch::kFloat32));
    with_type(draft.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> p(static_cast<std::size_t>(size)), q(p.size());
        for (auto row = begin; row < end; ++row) {
          const T *p_row = data<T>(target) + row * size, *q_row = data<T>(draft) + row * size;
          for (std::size_t i = 0; i < p.size(); ++i) p[i] = load(p_row[i]);
          for (std::size_t i = 0; i < q.size(); ++i) q[i] = load(q_row[i]);
          const auto value =
              loss.row(std::span<const float>(p), std::span<const float>(q), std::span<float>(q));
          data<float>(losses)[row] = static_cast<float>(loss.total(value));
          T* to = data<T>(gradient) + row * size;
          for (std::size_t i = 0; i < q.size(); ++i) store(to[i], q[i]);
        }
      });
    });
    context->save_for_backward({gradient});
    return losses;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto own = context->get_saved_variables()[0];
    return {own * gradients[0].unsqueeze(-1).to(own.scalar_type()), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor distillation(const Tensor& draft_logits, const Tensor& target_logits,
                    const specula::TopKDistillation& loss) {
  loss.validate();
  if (!draft_logits.is_cpu()) return plain::distillation(draft_logits, target_logits, loss);
  return DistillationFunction::apply(draft_logits, target_logits.to(draft_logits.scalar_type()), loss.k,
                                     loss.weight, loss.cross_entropy_weight);
}

Tensor plain::distillation(const Tensor& draft_logits, const Tensor& target_logits,
                           const specula::TopKDistillation& loss) {
  const auto log_q = torch::log_softmax(draft_logits.to(torch::kFloat32), -1);
  const auto p = torch::softmax(target_logits.detach().to(torch::kFloat32), -1);
  const auto k = std::min<std::int64_t>(loss.k, p.size(-1));
  const auto likeliest = std::get<1>(p.topk(k, -1, /*largest=*/true, /*sorted=*/false));
  const auto top_k = (p.gather(-1, likeliest) * log_q.gather(-1, likeliest)).sum(-1);
  return -loss.cross_entropy_weight * (p * log_q).sum(-1) - loss.weight * top_k;
}

}  // namespace specula_train
