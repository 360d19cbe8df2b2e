// The weight of a logit under a row's distribution: one rounding for all kernels.
#pragma once

#include "specula/cuda/host_device.cuh"
#include "specula/cuda/primitives/thread/numbers.cuh"
#include "specula/cuda/types.cuh"

namespace specula {
namespace cuda {
namespace detail {

SPECULA_HD double inverse(float temperature) { return 1.0 / static_cast<double>(temperature); }

/// weight(l) = 0 below the cut, else 2^((l - shift) * scale - offset), within 4e-7 relative of the
/// distribution's exponential plus 2.4e-7 of its exponent. `shift` is the float nearest to where the weight
/// is 1: floats near it are subtracted without rounding, and |offset| is at most the distribution's |log_z|.
struct Exponent {
  float shift, scale, offset, min_logit;

  SPECULA_HD Exponent() : shift(0), scale(0), offset(0), min_logit(0) {}
  /// Of a distribution at a temperature above 0.
  SPECULA_HD explicit Exponent(const RowStats& distribution)
      : Exponent(distribution, inverse(distribution.temperature)) {}

  SPECULA_HD float weight(float logit) const {
    return logit < min_logit ? 0.0f : exp2_fast(fused(difference(logit, shift), scale, -offset));
  }

 private:
  SPECULA_HD Exponent(const RowStats& distribution, double inv_t)
      : shift(static_cast<float>(static_cast<double>(distribution.shift) + distribution.log_z / inv_t)),
        scale(static_cast<float>(inv_t * kLog2E)),
        offset(static_cast<float>(
            (distribution.log_z -
             (static_cast<double>(shift) - static_cast<double>(distribution.shift)) * inv_t) *
            kLog2E)),
        min_logit(distribution.min_logit) {}
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
