// How long the proposals of a cascade can become under its table of limits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// Writes for each row of an upper triangular table of limits (none negative) the most tokens that a proposal
/// under it can have. A short proposal may go further beyond a limit than a long one, so it goes by the least
/// and the most that there can be before each turn.
template <class Limits>
void cascade_bounds(const Limits& limits, std::span<std::int64_t> bounds) {
  const std::size_t n = bounds.size(), last = n - 1;
  const std::int64_t batch = limits[last][last];  // what the last drafter drafts at a time
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
