// SPDX-License-Identifier: MIT
// exp of a logit as its weight under a row's distribution, with the same rounding in all kernels.
#pragma once

#include "specula/base/logit_weight.hpp"
#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

SPECULA_HD double inverse(float temperature) { return 1.0 / static_cast<double>(temperature); }

/// The weights of a row's distribution.
/// **Range.** Any logit of a row that has statistics; 0 below 2^-126, and below min_logit.
/// **Error.** 4e-7 of the exponential, plus 2.4e-7 of its exponent.
/// **Bits.** The same in all kernels: one fused product, whatever the compiler's flags.
struct Exponent : specula::detail::ExponentScalars {
  SPECULA_HD Exponent() {}
  /// Of a distribution at a temperature above 0.
  SPECULA_HD explicit Exponent(const RowStats& distribution)
      : ExponentScalars(distribution, inverse(distribution.temperature)) {}

  SPECULA_HD float weight(float logit) const {
    return logit < min_logit ? 0.0f : exp2_fast(fused(difference(logit, shift), scale, -offset));
  }
};

/// log of the probability of a logit under a distribution at a temperature above 0, whatever the truncation.
SPECULA_HD double log_prob(float logit, const RowStats& distribution) {
  return inverse(distribution.temperature) *
             (static_cast<double>(logit) - static_cast<double>(distribution.shift)) -
         distribution.log_z;
}
/// Probability of a logit, in double precision.
SPECULA_HD double prob(float logit, const RowStats& distribution) {
  return logit < distribution.min_logit ? 0.0 : exp(log_prob(logit, distribution));
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
