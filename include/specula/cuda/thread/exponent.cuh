// The weight of a logit under a row's law: one rounding for all kernels.
#pragma once

#include "../detail/host_device.cuh"
#include "../types.cuh"
#include "numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// weight(l) = 0 below the cut, else 2^((l - shift) * scale - offset), within 4e-7 relative of exp(l /
/// temperature - log_z) plus 2.4e-7 of its exponent. `shift` is near the logits, so the difference of two
/// large floats stays exact.
struct Exponent {
  float shift, scale, offset, cut;

  SPECULA_HD Exponent() : shift(0), scale(0), offset(0), cut(0) {}
  SPECULA_HD Exponent(double inv_t, double log_z, float below)
      : shift(static_cast<float>(log_z / inv_t)),
        scale(static_cast<float>(inv_t * kLog2E)),
        offset(static_cast<float>((log_z - static_cast<double>(shift) * inv_t) * kLog2E)),
        cut(below) {}

  SPECULA_HD float weight(float logit) const {
    return logit < cut ? 0.0f : exp2_fast(fused(difference(logit, shift), scale, -offset));
  }
};

SPECULA_HD double inverse(float temperature) { return 1.0 / static_cast<double>(temperature); }

/// Probability of a logit, in double precision.
SPECULA_HD double prob(float logit, double inv_t, double log_z, float cut) {
  return logit < cut ? 0.0 : exp(inv_t * static_cast<double>(logit) - log_z);
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
