// SPDX-License-Identifier: MIT
// The functions of fused.hpp in ATen, for devices other than the CPU, and for the tests.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "fused.hpp"
#include "rotary.hpp"

namespace specula_train::plain {

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon,
                       torch::ScalarType dtype);
torch::Tensor swiglu(const torch::Tensor& gate_up);
AttentionWeights masked_softmax(const torch::Tensor& scores, const torch::Tensor& visible,
                                const torch::Tensor& tail = {});
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& expected);
AttentionInputs rotate_and_split(const torch::Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                                 const RotaryTable& table);
torch::Tensor rotate_queries(const torch::Tensor& q, const RotaryTable& table);

}  // namespace specula_train::plain
