// SPDX-License-Identifier: MIT
// Sampling parameters: temperature, top-k, top-p, min-p. C++17.
#pragma once

#include <cstdint>

#include "specula/base/host_device.hpp"

namespace specula {

/// How a row of logits becomes a distribution. Truncation keeps the tokens with logit >= theta,
/// ties included, where theta is the largest of three thresholds: top-k's, top-p's over what top-k kept,
/// and min-p's (row maximum + temperature * ln(min_p)). The temperature is applied first, so top_p and
/// min_p refer to the distribution that is sampled.
struct SamplingParams {
  float temperature = 1.0f;  ///< of the softmax; 0: greedy, all mass on the first largest logit
  std::int32_t top_k = 0;    ///< keeps the k largest logits; 0: off
  float top_p = 1.0f;        ///< keeps the likeliest tokens of this total probability, in (0, 1]; 1: off
  float min_p = 0.0f;  ///< keeps tokens of at least this share of the largest probability, in [0, 1]; 0: off

  SPECULA_HD bool greedy() const { return temperature == 0.0f; }  ///< Whether the temperature is 0.
  /// Whether any of the three truncations is on.
  SPECULA_HD bool truncates() const { return top_k > 0 || top_p < 1.0f || min_p > 0.0f; }
};

}  // namespace specula
