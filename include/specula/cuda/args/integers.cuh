// SPDX-License-Identifier: MIT
// Host-device helpers (atomic add, minimum, maximum, rounding): the same source runs in kernels and CPU
// tests.
#pragma once

#include <cstdint>

#include "specula/base/host_device.hpp"

namespace specula {
namespace cuda {
namespace detail {

/// Atomic add; returns the old value. Integers only: their sums do not depend on the order.
template <class T>
SPECULA_HD T atomic_add(T* to, T value) {
#ifdef __CUDA_ARCH__
  return atomicAdd(to, value);
#else
  return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
#endif
}

template <class T>
SPECULA_HD T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
SPECULA_HD T larger(T a, T b) {
  return a < b ? b : a;
}
template <class T>
SPECULA_HD T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
SPECULA_HD T round_up(T a, T to) {
  return ceil_div(a, to) * to;
}

}  // namespace detail
}  // namespace cuda
}  // namespace specula
