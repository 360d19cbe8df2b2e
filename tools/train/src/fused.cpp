// SPDX-License-Identifier: MIT
#include "fused.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "plain.hpp"
#include "vector_math.hpp"

namespace specula_train {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

// ---- RMSNorm ----

struct RmsNormFunction : Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight, double epsilon,
                        std::int64_t dtype) {
    const auto x = input.contiguous();
    const auto type = static_cast<torch::ScalarType>(dtype);
    const auto size = x.size(-1), rows = x.numel() / size;
    auto out = torch::empty_like(x, x.options().dtype(type));
    auto inverse = torch::empty({rows}, x.options());
    with_type(type, [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        const float* w = data<float>(weight);
        for (auto row = begin; row < end; ++row) {
          const float* from = data<float>(x) + row * size;
          T* to = data<T>(out) + row * size;
          float sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t i = 0; i < size; ++i) sum += from[i] * from[i];
          const float scale = 1 / std::sqrt(sum / static_cast<float>(size) + static_cast<float>(epsilon));
          data<float>(inverse)[row] = scale;
          for (std::int64_t i = 0; i < size; ++i) store(to[i], from[i] * scale * w[i]);
        }
      });
    });
    context->save_for_backward({x, weight, inverse});
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &inverse = saved[2];
    const auto gradient = gradients[0].contiguous();
    const auto size = x.size(-1), rows = x.numel() / size;
    auto grad_x = torch::empty_like(x);
    // The weight's gradient is summed in a fixed number of parts, so that it does not depend on threads.
    constexpr std::int64_t kParts = 16;
    auto grad_weight = torch::zeros({kParts, size}, x.options());
    with_type(gradient.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, kParts, 1, [&](std::int64_t first_part, std::int64_t last_part) {
        const float* w = data<float>(weight);
        for (auto part = first_part; part < last_part; ++part) {
          float* dw = data<float>(grad_weight) + part * size;
          for (auto row = rows * part / kParts; row < rows * (part + 1) / kParts; ++row) {
            const float* from = data<float>(x) + row * size;
            const T* dy = data<T>(gradient) + row * size;
            float* dx = data<float>(grad_x) + row * size;
            const float scale = data<float>(inverse)[row];
            float dot = 0;
#pragma omp simd reduction(+ : dot)
            for (std::int64_t i = 0; i < size; ++i) dot += load(dy[i]) * w[i] * from[i];
            const float mean = dot * scale * scale / static_cast<float>(size);
            for (std::int64_t i = 0; i < size; ++i) {
              dx[i] = scale * (load(dy[i]) * w[i] - from[i] * mean);
              dw[i] += load(dy[i]) * from[i] * scale;
            }
          }
        }
      });
    });
    return {grad_x, grad_weight.sum(0), Tensor(), Tensor()};
  }
};

// ---- SwiGLU ----

struct SwigluFunction : Function<SwigluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input) {
    const auto gate_up = input.contiguous();
    const auto size = gate_up.size(-1) / 2, rows = gate_up.numel() / (2 * size);
    auto shape = gate_up.sizes().vec();
    shape.back() = size;
    auto out = torch::empty(shape, gate_up.options());
    with_type(gate_up.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (auto row = begin; row < end; ++row) {
          const T* gate = data<T>(gate_up) + row * 2 * size;
          const T* up = gate + size;
          T* to = data<T>(out) + row * size;
          for (std::int64_t i = 0; i < size; ++i) {
            const float g = load(gate[i]);
            store(to[i], g / (1 + fast_exp(-g)) * load(up[i]));
          }
        }
      });
    });
    context->save_for_backward({gate_up});
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto gate_up = context->get_saved_variables()[0];
    const auto gradient = gradients[0].contiguous();
    const auto size = gate_up.size(-1) / 2, rows = gate_up.numel() / (2 * size);
    auto result = torch::empty_like(gate_up);
    with_type(gate_up.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (auto row = begin; row < end; ++row) {
          const T* gate = data<T>(gate_up) + row * 2 * size;
          const T* up = gate + size;
          const T* dy = data<T>(gradient) + row * size;
          T* dgate = data<T>(result) + row * 2 * size;
          T* dup = dgate + size;
          for (std::int64_t i = 0; i < size; ++i) {
            const float g = load(gate[i]), d = load(dy[i]);
            const float sigmoid = 1 / (1 + fast_exp(-g));
            store(dgate[i], d * load(up[i]) * sigmoid * (1 + g * (1 - sigmoid)));
            store(dup[i], d * g * sigmoid);
          }
        }
      });
    });
    return {result};
  }
};

// ---- Softmax ----

constexpr float kHidden = -std::numeric_limits<float>::infinity();

/// A row of scores in two pieces, and its softmax in the same two.
template <class T>
struct SplitRow {
  std::int64_t row, columns, tail, seen;
  T* head(const Tensor& tensor) const { return data<T>(tensor) + row * columns; }
  T* rest(const Tensor& tensor) const { return data<T>(tensor) + row * tail; }
};

/// In whole vectors.
constexpr std::int64_t padded(std::int64_t count) { return (count + 15) / 16 * 16; }

/// Calls f(row, buffer of a row's length) for all rows of scores (..., T, columns), shared out to threads.
template <class F>
void for_split_rows(const Tensor& scores, const Tensor& tail, const Tensor& visible, const F& f) {
  const auto length = scores.size(-2), columns = scores.size(-1), more = tail.size(-1);
  with_type(scores.scalar_type(), [&]<class T>(T) {
    at::parallel_for(0, scores.numel() / columns, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> buffer(static_cast<std::size_t>(padded(columns + more)));
      for (auto row = begin; row < end; ++row)
        f(SplitRow<T>{row, columns, more, data<std::int64_t>(visible)[row % length]}, buffer.data());
    });
  });
}

struct MaskedSoftmaxFunction : Function<MaskedSoftmaxFunction> {
  static tensor_list forward(AutogradContext* context, const Tensor& scores_in, const Tensor& tail_in,
                             const Tensor& visible) {
    const auto scores = scores_in.contiguous(), tail = tail_in.contiguous();
    auto weights = torch::empty_like(scores), tail_weights = torch::empty_like(tail);
    for_split_rows(scores, tail, visible, [&]<class T>(const SplitRow<T>& at, float* row) {
      // All visible scores, contiguous and padded to whole vectors.
      const auto seen = at.seen, more = at.tail, whole = padded(seen + more);
      const T *from = at.head(scores), *from_tail = at.rest(tail);
      T *to = at.head(weights), *to_tail = at.rest(tail_weights);
      for (std::int64_t i = 0; i < seen; ++i) row[i] = load(from[i]);
      for (std::int64_t i = 0; i < more; ++i) row[seen + i] = load(from_tail[i]);
      std::fill(row + seen + more, row + whole, kHidden);
      float maximum = kHidden, sum = 0;
#pragma omp simd reduction(max : maximum)
      for (std::int64_t i = 0; i < whole; ++i) maximum = std::max(maximum, row[i]);
      maximum = std::max(maximum, std::numeric_limits<float>::lowest());  // of a row without visible scores
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = 0; i < whole; ++i) {
        const float exponential = fast_exp(row[i] - maximum);
        row[i] = row[i] == kHidden ? 0 : exponential;
        sum += row[i];
      }
      const float scale = sum == 0 ? 0 : 1 / sum;
      for (std::int64_t i = 0; i < seen; ++i) store(to[i], row[i] * scale);
      for (std::int64_t i = seen; i < at.columns; ++i) store(to[i], 0);
      for (std::int64_t i = 0; i < more; ++i) store(to_tail[i], row[seen + i] * scale);
    });
    context->save_for_backward({weights, tail_weights, visible});
    return {weights, tail_weights};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &weights = saved[0], &tail_weights = saved[1], &visible = saved[2];
    const auto gradient = gradients[0].contiguous(), tail_gradient = gradients[1].contiguous();
    auto result = torch::empty_like(weights), tail_result = torch::empty_like(tail_weights);
    for_split_rows(weights, tail_weights, visible, [&]<class T>(const SplitRow<T>& at, float*) {
      const auto seen = at.seen, more = at.tail;
      const T *weight = at.head(weights), *tail_weight = at.rest(tail_weights);
      const T *dy = at.head(gradient), *tail_dy = at.rest(tail_gradient);
      T *dx = at.head(result), *tail_dx = at.rest(tail_result);
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t i = 0; i < seen; ++i) dot += load(weight[i]) * load(dy[i]);
      for (std::int64_t i = 0; i < more; ++i) dot += load(tail_weight[i]) * load(tail_dy[i]);
      for (std::int64_t i = 0; i < seen; ++i) store(dx[i], load(weight[i]) * (load(dy[i]) - dot));
      for (std::int64_t i = seen; i < at.columns; ++i) store(dx[i], 0);
      for (std::int64_t i = 0; i < more; ++i)
        store(tail_dx[i], load(tail_weight[i]) * (load(tail_dy[i]) - dot));
    });
    return {result, tail_result, Tensor()};
  }
};

// ---- Cross entropy ----

/// Computes the gradient together with the loss: this costs another pass over a row that is still in cache,
/// and saves a float32 copy of all logits.
struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& expected) {
    const auto logits = input.contiguous();
    const auto size = logits.size(-1), rows = logits.numel() / size;
    auto gradient = torch::empty_like(logits);
    auto losses = torch::empty({rows}, logits.options().dtype(torch::kFloat32));
    const float share = 1 / static_cast<float>((expected >= 0).sum().item<std::int64_t>());
    with_type(logits.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> buffer(static_cast<std::size_t>(size));
        float* exponentials = buffer.data();
        for (auto row = begin; row < end; ++row) {
          const T* from = data<T>(logits) + row * size;
          T* to = data<T>(gradient) + row * size;
          const auto answer = data<std::int64_t>(expected)[row];
          if (answer == -1) {
            data<float>(losses)[row] = 0;
            for (std::int64_t i = 0; i < size; ++i) store(to[i], 0);
            continue;
          }
          TORCH_CHECK_INDEX(answer >= 0 && answer < size, "token ", answer, " is outside the vocabulary of ",
                            size);
          float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
          for (std::int64_t i = 0; i < size; ++i) maximum = std::max(maximum, load(from[i]));
          float sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t i = 0; i < size; ++i) {
            exponentials[i] = fast_exp(load(from[i]) - maximum);
            sum += exponentials[i];
          }
          data<float>(losses)[row] = maximum + std::log(sum) - load(from[answer]);
          const float scale = share / sum;
          for (std::int64_t i = 0; i < size; ++i) store(to[i], exponentials[i] * scale);
          store(to[answer], exponentials[answer] * scale - share);
        }
      });
    });
    context->save_for_backward({gradient});
    return losses.sum() * share;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    return {context->get_saved_variables()[0] * gradients[0], Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, torch::ScalarType dtype) {
  if (!x.is_cpu()) return plain::rms_norm(x, weight, epsilon, dtype);
  return RmsNormFunction::apply(x, weight, epsilon, static_cast<std::int64_t>(dtype));
}

Tensor swiglu(const Tensor& gate_up) {
  return gate_up.is_cpu() ? SwigluFunction::apply(gate_up) : plain::swiglu(gate_up);
}

AttentionWeights masked_softmax(const Tensor& scores, const Tensor& visible, const Tensor& tail) {
  if (!scores.is_cpu()) return plain::masked_softmax(scores, visible, tail);
  auto shape = scores.sizes().vec();
  shape.back() = 0;
  const auto parts =
      MaskedSoftmaxFunction::apply(scores, tail.defined() ? tail : scores.new_empty(shape), visible);
  return {parts[0], tail.defined() ? parts[1] : Tensor()};
}

Tensor cross_entropy(const Tensor& logits, const Tensor& expected) {
  if (!logits.is_cpu()) return plain::cross_entropy(logits, expected);
  return CrossEntropyFunction::apply(logits, expected.contiguous());
}

}  // namespace specula_train
