// Sampling parameters: temperature, top-k, top-p, min-p.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"
#include "specula/base/fields.hpp"

namespace specula {

/// How a row of logits becomes a distribution. Truncation keeps the tokens with logit >= theta,
/// ties included, where theta is the largest of three thresholds: top-k's, top-p's over what top-k kept,
/// and min-p's (row maximum + temperature * ln(min_p)). The temperature is applied first, so top_p and
/// min_p refer to the distribution that is sampled.
struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy, all mass on the first largest logit
  std::int32_t top_k = 0;    // 0: off
  float top_p = 1.0f;        // in (0, 1]; 1: off
  float min_p = 0.0f;        // in [0, 1]; 0: off

  bool greedy() const { return temperature == 0.0f; }
  bool truncates() const { return top_k > 0 || top_p < 1.0f || min_p > 0.0f; }
};

/// Throws std::invalid_argument naming the field, its value and the allowed range. NaN is never allowed.
/// Cost: a few comparisons.
inline void validate(const SamplingParams& params) {
  const auto expect = [](bool ok, const char* what, auto value, const char* range) {
    if (!ok)
      throw std::invalid_argument(std::string("SamplingParams::") + what + " is " + detail::number(value) +
                                  ", must be " + range);
  };
  expect(std::isfinite(params.temperature) && params.temperature >= 0.0f, "temperature", params.temperature,
         "finite and >= 0");
  expect(params.temperature == 0.0f || params.temperature >= 1e-4f, "temperature", params.temperature,
         "0 (greedy) or at least 1e-4");
  expect(params.top_k >= 0, "top_k", params.top_k, ">= 0 (0 is off)");
  expect(params.top_p > 0.0f && params.top_p <= 1.0f, "top_p", params.top_p, "in (0, 1]");
  expect(params.min_p >= 0.0f && params.min_p <= 1.0f, "min_p", params.min_p, "in [0, 1]");
}

}  // namespace specula
