// The weight of a logit as a power of two: the scalars that row kernels need of a distribution. C++17.
#pragma once

#include "specula/base/host_device.hpp"

namespace specula::detail {

constexpr double kLog2E = 1.4426950408889634074;

/// weight(l) = 0 below min_logit, else 2^((l - shift) * scale - offset). `shift` is the float nearest to
/// the logit of weight 1: it is subtracted from nearby floats without rounding, and |offset| is at most the
/// distribution's |log_z|.
struct ExponentScalars {
  float shift, scale, offset, min_logit;

  SPECULA_HD constexpr ExponentScalars() : shift(0), scale(0), offset(0), min_logit(0) {}
  /// Of the distribution exp(inv_t * (l - largest) - log_z), 0 below min_logit.
  SPECULA_HD constexpr ExponentScalars(double inv_t, float largest, double log_z, float least)
      : shift(static_cast<float>(static_cast<double>(largest) + log_z / inv_t)),
        scale(static_cast<float>(inv_t * kLog2E)),
        offset(static_cast<float>(
            (log_z - (static_cast<double>(shift) - static_cast<double>(largest)) * inv_t) * kLog2E)),
        min_logit(least) {}
};

}  // namespace specula::detail
