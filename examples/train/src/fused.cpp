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

struct CausalSoftmaxFunction : Function<CausalSoftmaxFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input) {
    const auto scores = input.contiguous();
    const auto length = scores.size(-1), rows = scores.numel() / length;
    auto weights = torch::empty_like(scores);
    with_type(scores.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> buffer(static_cast<std::size_t>(length));
        float* exponentials = buffer.data();
        for (auto row = begin; row < end; ++row) {
          const auto seen = row % length + 1;
          const T* from = data<T>(scores) + row * length;
          T* to = data<T>(weights) + row * length;
          float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
          for (std::int64_t i = 0; i < seen; ++i) maximum = std::max(maximum, load(from[i]));
          float sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t i = 0; i < seen; ++i) {
            exponentials[i] = fast_exp(load(from[i]) - maximum);
            sum += exponentials[i];
          }
          const float scale = 1 / sum;
          for (std::int64_t i = 0; i < seen; ++i) store(to[i], exponentials[i] * scale);
          for (std::int64_t i = seen; i < length; ++i) store(to[i], 0);
        }
      });
    });
    context->save_for_backward({weights});
    return weights;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto weights = context->get_saved_variables()[0];
    const auto gradient = gradients[0].contiguous();
    const auto length = weights.size(-1), rows = weights.numel() / length;
    auto result = torch::empty_like(weights);
    with_type(weights.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (auto row = begin; row < end; ++row) {
          const auto seen = row % length + 1;
          const T* weight = data<T>(weights) + row * length;
          const T* dy = data<T>(gradient) + row * length;
          T* dx = data<T>(result) + row * length;
          float dot = 0;
#pragma omp simd reduction(+ : dot)
          for (std::int64_t i = 0; i < seen; ++i) dot += load(weight[i]) * load(dy[i]);
          for (std::int64_t i = 0; i < seen; ++i) store(dx[i], load(weight[i]) * (load(dy[i]) - dot));
          for (std::int64_t i = seen; i < length; ++i) store(dx[i], 0);
        }
      });
    });
    return {result};
  }
};

// ---- Cross entropy ----

/// Makes the gradient along with the loss: that costs one more pass over a row that is still in cache,
/// and saves keeping a float32 copy of all logits.
struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& expected) {
    const auto logits = input.contiguous();
    const auto size = logits.size(-1), rows = logits.numel() / size;
    auto gradient = torch::empty_like(logits);
    auto losses = torch::empty({rows}, logits.options().dtype(torch::kFloat32));
    with_type(logits.scalar_type(), [&]<class T>(T) {
      at::parallel_for(0, rows, kGrain, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> buffer(static_cast<std::size_t>(size));
        float* exponentials = buffer.data();
        for (auto row = begin; row < end; ++row) {
          const T* from = data<T>(logits) + row * size;
          T* to = data<T>(gradient) + row * size;
          const auto answer = data<std::int64_t>(expected)[row];
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
          const float share = 1 / static_cast<float>(rows), scale = share / sum;
          for (std::int64_t i = 0; i < size; ++i) store(to[i], exponentials[i] * scale);
          store(to[answer], exponentials[answer] * scale - share);
        }
      });
    });
    context->save_for_backward({gradient});
    return losses.mean();
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

Tensor causal_softmax(const Tensor& scores) {
  return scores.is_cpu() ? CausalSoftmaxFunction::apply(scores) : plain::causal_softmax(scores);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& expected) {
  if (!logits.is_cpu()) return plain::cross_entropy(logits, expected);
  return CrossEntropyFunction::apply(logits, expected.contiguous());
}

}  // namespace specula_train
