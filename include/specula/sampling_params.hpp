// Range checks of sampling parameters; base/sampling_params.hpp has the parameters themselves.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>

#include "specula/base/compiler_options.hpp"
#include "specula/base/fields.hpp"
#include "specula/base/sampling_params.hpp"

namespace specula {

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
