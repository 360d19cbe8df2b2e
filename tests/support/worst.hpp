// SPDX-License-Identifier: MIT
// The worst of several errors, of which one may be NaN.
#pragma once

#include <cmath>
#include <cstddef>

namespace specula_test {

/// The larger of two errors, or NaN if one is: std::max() would pass over a NaN, and so would the test.
inline double worse(double worst, double error) {
  return std::isnan(worst) || error <= worst ? worst : error;
}

/// The largest difference of `expected` and the numbers of `got`, of which there must be as many; -infinity
/// equals itself.
template <class Row, class Expected>
double farthest(const Row& got, const Expected& expected) {
  double worst = got.size() == expected.size() ? 0 : NAN;
  for (std::size_t i = 0; i < expected.size() && i < got.size(); ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(expected[i]);
    worst = worse(worst, a == b ? 0 : std::abs(a - b));
  }
  return worst;
}

}  // namespace specula_test
