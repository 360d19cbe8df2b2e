// SPDX-License-Identifier: MIT
#include "attention.hpp"

#include <limits>

#include "fused.hpp"

namespace specula_train {
namespace {

using torch::Tensor;

/// x (outer, T, D) -> (outer, 1, T, D) whose row t is x's row t - lag, zeros before.
Tensor lagged(const Tensor& x, std::int64_t lag) {
  const auto kept = x.narrow(1, 0, x.size(1) - lag);
  return (lag == 0 ? x : torch::constant_pad_nd(kept, {0, 0, lag, 0})).unsqueeze(1);
}

}  // namespace

Tensor attend(const Tensor& q, const KeyValues& keys, const Tensor& visible,
              const std::vector<LaggedKey>& more) {
  const auto outer = q.size(0), length = visible.size(0), size = q.size(2), columns = keys.k.size(1);
  const auto scores = torch::bmm(q, keys.k.transpose(1, 2)).view({-1, length, columns});
  if (more.empty()) {
    const auto weights = masked_softmax(scores, visible).columns;
    return torch::bmm(weights.view({outer, -1, columns}), keys.v);
  }

  const auto by_position = q.view({outer, -1, length, size});
  std::vector<Tensor> tail;
  for (const auto& key : more) {
    const auto score = (by_position * lagged(key.from.k, key.lag)).sum(-1, false, torch::kFloat32);
    tail.push_back(score.masked_fill(key.hidden, -std::numeric_limits<float>::infinity()));
  }
  const auto few = static_cast<std::int64_t>(more.size());
  const auto weights =
      masked_softmax(scores, visible, torch::stack(tail, -1).to(q.scalar_type()).view({-1, length, few}));
  auto mixed = torch::bmm(weights.columns.view({outer, -1, columns}), keys.v).view_as(by_position);
  const auto tail_weights = weights.tail.view({outer, -1, length, few});
  for (std::int64_t i = 0; i < few; ++i) {
    const auto& key = more[static_cast<std::size_t>(i)];
    mixed = mixed + tail_weights.narrow(-1, i, 1) * lagged(key.from.v, key.lag);
  }
  return mixed.view({outer, -1, size});
}

Tensor join_heads(const Tensor& mixed, std::int64_t batch, std::int64_t length) {
  return mixed.view({batch, -1, length, mixed.size(2)}).transpose(1, 2).reshape({batch, length, -1});
}

Tensor causal(std::int64_t length, torch::Device device) {
  return torch::arange(1, length + 1, torch::TensorOptions().dtype(torch::kInt64).device(device));
}

}  // namespace specula_train
