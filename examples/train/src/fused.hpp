// The decoder's steps between its matrix products, each with its gradient.
//
// Written with ATen operations they are many passes over memory, and on a CPU they cost more than the
// products. So on a CPU each is one loop, forward and backward; on other devices plain.hpp does it.
#pragma once

#include <torch/torch.h>

namespace specula_train {

/// x / rms(x) * weight. x (..., n) float32, weight (n) -> (..., n) in `dtype`.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon,
                       torch::ScalarType dtype);

/// silu(gate) * up. gate_up (..., 2 n), the gates first -> (..., n).
torch::Tensor swiglu(const torch::Tensor& gate_up);

/// Softmax over the last dimension, in which query t sees keys 0 .. t. scores (..., T, T).
torch::Tensor causal_softmax(const torch::Tensor& scores);

/// Mean of -log softmax(logits)[expected]. logits (n, V), expected (n) int64 -> a scalar.
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& expected);

}  // namespace specula_train
