// SPDX-License-Identifier: MIT
// How far a row is from another.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace specula_test {

/// The 2-norm of the difference over that of `reference`.
inline double relative_error(std::span<const float> row, std::span<const float> reference) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double x = static_cast<double>(row[i]), y = static_cast<double>(reference[i]);
    difference += (x - y) * (x - y), norm += y * y;
  }
  return std::sqrt(difference / norm);
}

}  // namespace specula_test
