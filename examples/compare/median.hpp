#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace specula_examples {

/// Of at least one value; of an even number of them the mean of the middle two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace specula_examples
