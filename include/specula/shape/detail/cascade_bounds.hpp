// SPDX-License-Identifier: MIT
// Upper bounds on the proposal length of a cascade under its table of limits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Writes, per row of an upper triangular table of limits (none negative), the largest number of tokens of a
/// proposal under it. A short proposal may exceed a limit by more than a long one, so the recursion tracks
/// the smallest and the largest length before each turn.
template <class Limits>
void cascade_bounds(const Limits& limits, std::span<std::int64_t> bounds) {
  const std::size_t n = bounds.size(), last = n - 1;
  const std::int64_t batch = limits[last][last];  // tokens that the last drafter drafts at a time
  for (std::size_t row = n; row-- > 0;) {
    std::int64_t least = 0, most = 0, limit = 0;
    for (std::size_t i = row; i < n; ++i) {
      limit += limits[row][i];
      if (least >= limit) continue;
      if (i == last && least == most && batch > 0) {  // a known number of draft tokens
        least = most += (limit - most + batch - 1) / batch * batch;
      } else {
        most = std::max(most, limit - 1 + (i == last ? batch : bounds[i + 1] + 1));
        if (i != last) least = limit;
      }
    }
    bounds[row] = most;
  }
}

}  // namespace specula::detail
