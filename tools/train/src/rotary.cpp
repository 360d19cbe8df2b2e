// SPDX-License-Identifier: MIT
#include "rotary.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <specula/cpu/detail/rope_table.hpp>
#include <vector>

#include "plain.hpp"
#include "vector_math.hpp"

namespace specula_train {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

struct HeadLayout {
  std::int64_t batch, length, heads, kv_heads, size;
};

/// Moves between qkv (B, T, heads + 2 kv_heads, D) and q, k, v in AttentionInputs' layout, and rotates on
/// the way: forward into q, k, v; backward, with the opposite angle, into qkv. kv_heads may be 0: queries
/// only.
template <bool kForward, class T>
void move_heads(const HeadLayout& layout, const RotaryTable& table, T* qkv, T* q, T* k, T* v) {
  const auto length = layout.length, heads = layout.heads, kv_heads = layout.kv_heads, size = layout.size;
  const auto half = size / 2, width = heads + 2 * kv_heads;
  const float query_scale = 1 / std::sqrt(static_cast<float>(size));

  const auto rotate = [half](T* packed, T* split, const float* cosine, const float* sine, float scale) {
    const T* from = kForward ? packed : split;
    T* to = kForward ? split : packed;
    const float sign = kForward ? scale : -scale;
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = load(from[i]), b = load(from[i + half]);
      store(to[i], a * cosine[i] * scale - b * sine[i] * sign);
      store(to[i + half], b * cosine[i] * scale + a * sine[i] * sign);
    }
  };

  at::parallel_for(0, layout.batch * length, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (auto at = begin; at < end; ++at) {
      const auto b = at / length, t = at % length;
      const float* cosine = data<float>(table.cosine) + t * half;
      const float* sine = data<float>(table.sine) + t * half;
      T* packed = qkv + at * width * size;
      for (std::int64_t h = 0; h < heads; ++h) {
        // Head h of the batch's row b lies at (b * kv_heads + h / group, h % group), that is, in order.
        rotate(packed + h * size, q + ((b * heads + h) * length + t) * size, cosine, sine, query_scale);
      }
      for (std::int64_t h = 0; h < kv_heads; ++h) {
        const auto there = ((b * kv_heads + h) * length + t) * size;
        rotate(packed + (heads + h) * size, k + there, cosine, sine, 1);
        T* value = packed + (heads + kv_heads + h) * size;
        if constexpr (kForward) {
          std::copy_n(value, size, v + there);
        } else {
          std::copy_n(v + there, size, value);
        }
      }
    }
  });
}

struct RotateAndSplitFunction : Function<RotateAndSplitFunction> {
  static tensor_list forward(AutogradContext* context, const Tensor& input, std::int64_t heads,
                             std::int64_t kv_heads, const Tensor& cosine, const Tensor& sine) {
    const auto qkv = input.contiguous();
    const HeadLayout layout{qkv.size(0), qkv.size(1), heads, kv_heads, qkv.size(3)};
    const auto outer = layout.batch * kv_heads;
    auto q = torch::empty({layout.batch * heads, layout.length, layout.size}, qkv.options());
    auto k = torch::empty({outer, layout.length, layout.size}, qkv.options());
    auto v = torch::empty_like(k);
    with_type(qkv.scalar_type(), [&]<class T>(T) {
      move_heads<true>(layout, {cosine, sine}, data<T>(qkv), data<T>(q), data<T>(k), data<T>(v));
    });
    context->saved_data["cosine"] = cosine;
    context->saved_data["sine"] = sine;
    context->saved_data["layout"] =
        std::vector<std::int64_t>{layout.batch, layout.length, heads, kv_heads, layout.size};
    return {q, k, v};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto sizes = context->saved_data["layout"].toIntVector();
    const HeadLayout layout{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
    const RotaryTable table{context->saved_data["cosine"].toTensor(), context->saved_data["sine"].toTensor()};
    const auto q = gradients[0].contiguous(), k = gradients[1].contiguous(), v = gradients[2].contiguous();
    auto result = torch::empty({layout.batch, layout.length, layout.heads + 2 * layout.kv_heads, layout.size},
                               q.options());
    with_type(q.scalar_type(), [&]<class T>(T) {
      move_heads<false>(layout, table, data<T>(result), data<T>(q), data<T>(k), data<T>(v));
    });
    return {result, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

RotaryTable make_rotary_table(std::int64_t length, const specula::cpu::AttentionShape& shape,
                              torch::Device device) {
  std::vector<double> frequencies;
  for (std::int32_t pair = 0; pair < shape.head_dim / 2; ++pair)
    frequencies.push_back(specula::cpu::detail::rope_frequency(shape, pair));
  const auto angles =
      torch::outer(torch::arange(length, torch::kFloat64), torch::tensor(frequencies, torch::kFloat64));
  const double factor = shape.rope_scaling.attention_factor;
  return {(angles.cos() * factor).to(device, torch::kFloat32),
          (angles.sin() * factor).to(device, torch::kFloat32)};
}

AttentionInputs rotate_and_split(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                                 const RotaryTable& table) {
  if (!qkv.is_cpu()) return plain::rotate_and_split(qkv, heads, kv_heads, table);
  const auto parts = RotateAndSplitFunction::apply(qkv, heads, kv_heads, table.cosine, table.sine);
  return {parts[0].view({qkv.size(0) * kv_heads, -1, qkv.size(3)}), {parts[1], parts[2]}};
}

Tensor rotate_queries(const Tensor& q, const RotaryTable& table) {
  if (!q.is_cpu()) return plain::rotate_queries(q, table);
  return RotateAndSplitFunction::apply(q, q.size(2), 0, table.cosine, table.sine)[0];
}

}  // namespace specula_train
