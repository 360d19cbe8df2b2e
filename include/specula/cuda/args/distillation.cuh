// SPDX-License-Identifier: MIT
// Arguments of top-k distillation.
#pragma once

#include <cstdint>

#include "specula/cuda/args/types.cuh"

namespace specula {
namespace cuda {

/// Sizes of the batches, known to the host.
struct DistillationCapacity {
  int rows = 0;   ///< R: exactly, in every call
  int vocab = 0;  ///< V
};

/// Weights of the loss, as specula::TopKDistillation: total = cross_entropy_weight * cross entropy + weight *
/// the part of it from the `k` likeliest tokens of the target.
struct TopKDistillation {
  std::int32_t k = 10;                ///< in [0, 64]
  double weight = 1;                  ///< of the top-k part
  double cross_entropy_weight = 0.1;  ///< of the cross entropy over all tokens
};

/// R rows of logits over the vocabulary, losses and gradients; all arrays on the device. Strides in elements.
template <class Target, class Draft, class Gradient>
struct DistillationRows {
  const Target* target;          ///< (R, V)
  std::int64_t target_stride;    ///< from row to row
  const Draft* draft;            ///< (R, V)
  std::int64_t draft_stride;     ///< from row to row
  Gradient* gradient;            ///< (R, V), may be `draft` if the strides are alike; null: not written
  std::int64_t gradient_stride;  ///< from row to row
  const float* scale;            ///< (R) what a row's gradient is multiplied by; null: 1
  float* loss;     ///< (R, 2) cross entropy and top-k part, in nats; neither weighted nor scaled
  Status* status;  ///< (R) where it is not `ok`, losses and gradient are 0
};

namespace detail {

inline bool is_distillation(const DistillationCapacity& capacity, const TopKDistillation& loss) {
  const auto is_weight = [](double x) { return x >= 0 && x <= 3.4e38; };  // NaN is none
  return capacity.rows >= 1 && capacity.vocab >= 1 && loss.k >= 0 && loss.k <= 64 && is_weight(loss.weight) &&
         is_weight(loss.cross_entropy_weight);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
