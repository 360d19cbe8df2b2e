// SPDX-License-Identifier: MIT
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

  SPECULA_HD ExponentScalars() : shift(0), scale(0), offset(0), min_logit(0) {}
  /// The scalars of the distribution `of`: exp(inv_t * (l - shift) - log_z), 0 below min_logit.
  template <class Distribution>
  SPECULA_HD ExponentScalars(const Distribution& of, double inv_t)
      : shift(static_cast<float>(static_cast<double>(of.shift) + of.log_z / inv_t)),
        scale(static_cast<float>(inv_t * kLog2E)),
        offset(static_cast<float>(
            (of.log_z - (static_cast<double>(shift) - static_cast<double>(of.shift)) * inv_t) * kLog2E)),
        min_logit(of.min_logit) {}
};

}  // namespace specula::detail
