// SPDX-License-Identifier: MIT
// Rows of numbers as engines keep them: 16-bit elements, sampling parameters by sequence, statistics of a
// row. Plain structs over pointers, for CPU and device code. C++17.
#pragma once

#include <cstdint>

#include "specula/base/host_device.hpp"
#include "specula/base/sampling_params.hpp"
#include "specula/base/status.hpp"
#include "specula/base/tokens.hpp"

namespace specula::arrays {

/// Elements of rows, of the layout of __half and __nv_bfloat16 (and of any other library's types of these
/// formats: pass a reinterpret_cast pointer).
struct Half {
  std::uint16_t bits;  ///< as stored
};
/// The upper half of a float.
struct BFloat16 {
  std::uint16_t bits;  ///< as stored
};

/// Sampling parameters of B sequences: an array of SamplingParams, or an array of each, where a null one has
/// no effect. A pointer to the former converts.
struct ParamArrays {
  const SamplingParams* all = nullptr;  ///< (B); null: the arrays below
  const float* temperature = nullptr;   ///< (B); null: 1
  const std::int32_t* top_k = nullptr;  ///< (B); null: 0
  const float* top_p = nullptr;         ///< (B); null: 1
  const float* min_p = nullptr;         ///< (B); null: 0

  /// None: the distribution of the softmax itself.
  SPECULA_HD ParamArrays(const SamplingParams* params = nullptr) : all(params) {}
  /// Of one sequence.
  SPECULA_HD SamplingParams operator[](int sequence) const {
    if (all) return all[sequence];
    return {temperature ? temperature[sequence] : 1.0f, top_k ? top_k[sequence] : 0,
            top_p ? top_p[sequence] : 1.0f, min_p ? min_p[sequence] : 0.0f};
  }
};

/// The distribution of a row in scalars: distribution(x) = 0 where logits[x] < cut, else exp((logits[x] -
/// shift) / temperature - log_z). `shift` is the row's largest logit, so log_z is in [0, log V], whatever the
/// logits' size. At temperature 0 it is the point mass on `point`.
struct RowStats {
  double log_z;       ///< logarithm of the normaliser of what truncation kept, relative to `shift`
  float shift;        ///< the row's largest logit
  float temperature;  ///< 0: a point mass
  float min_logit;    ///< the cut
  Token point;        ///< kNoToken above temperature 0
  Status status;      ///< the row's
};

}  // namespace specula::arrays
