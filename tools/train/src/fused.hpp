// SPDX-License-Identifier: MIT
// Fused RMSNorm, SwiGLU, softmax and cross entropy with their gradients, for CPUs.
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

/// Attention weights: for the columns of a matrix of scores, and for a few additional columns.
struct AttentionWeights {
  torch::Tensor columns, tail;
};

/// Softmax of each row over the columns that it sees: the first visible[t] of scores (..., T, columns), where
/// t is its place in its matrix, and all of tail (..., T, few; undefined: none). visible (T) int64, on the
/// scores' device. Scores of minus infinity are not visible; a row without visible scores is all zeros.
AttentionWeights masked_softmax(const torch::Tensor& scores, const torch::Tensor& visible,
                                const torch::Tensor& tail = {});

/// Mean of -log softmax(logits)[expected]. logits (n, V), expected (n) int64, -1: a row that does not count
/// -> a scalar. At least one row counts.
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& expected);

}  // namespace specula_train
