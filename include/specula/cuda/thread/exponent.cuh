// The weight of a logit under a row's law: one rounding for all kernels.
#pragma once

#include "../detail/host_device.cuh"
#include "../types.cuh"
#include "numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

SPECULA_HD double inverse(float temperature) { return 1.0 / static_cast<double>(temperature); }

/// weight(l) = 0 below the cut, else 2^((l - shift) * scale - offset), within 4e-7 relative of the law's
/// exponential plus 2.4e-7 of its exponent. `shift` is the float nearest to where the weight is 1: floats
/// near it are subtracted without rounding, and |offset| is at most the law's |log_z|.
struct Exponent {
  float shift, scale, offset, cut;

  SPECULA_HD Exponent() : shift(0), scale(0), offset(0), cut(0) {}
  /// Of a law at a temperature above 0.
  SPECULA_HD explicit Exponent(const RowStats& law) : Exponent(law, inverse(law.temperature)) {}

  SPECULA_HD float weight(float logit) const {
    return logit < cut ? 0.0f : exp2_fast(fused(difference(logit, shift), scale, -offset));
  }

 private:
  SPECULA_HD Exponent(const RowStats& law, double inv_t)
      : shift(static_cast<float>(static_cast<double>(law.shift) + law.log_z / inv_t)),
        scale(static_cast<float>(inv_t * kLog2E)),
        offset(static_cast<float>(
            (law.log_z - (static_cast<double>(shift) - static_cast<double>(law.shift)) * inv_t) * kLog2E)),
        cut(law.cut) {}
};

/// log of the probability of a logit under a law at a temperature above 0, whatever the cut.
SPECULA_HD double log_prob(float logit, const RowStats& law) {
  return inverse(law.temperature) * (static_cast<double>(logit) - static_cast<double>(law.shift)) - law.log_z;
}
/// Probability of a logit, in double precision.
SPECULA_HD double prob(float logit, const RowStats& law) {
  return logit < law.cut ? 0.0 : exp(log_prob(logit, law));
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
