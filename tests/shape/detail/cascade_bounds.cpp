// SPDX-License-Identifier: MIT
// Largest proposals of cascades under a table of limits.
#include <specula/shape/detail/cascade_bounds.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

using specula::detail::cascade_bounds;

namespace {

template <std::size_t n>
using Limits = std::array<std::array<std::int32_t, n>, n>;

template <std::size_t n>
std::array<std::int64_t, n> bounds_of(const Limits<n>& limits) {
  std::array<std::int64_t, n> bounds;
  cascade_bounds(limits, bounds);
  return bounds;
}

/// The longest proposal under `row` from its drafter `i` on, after `length` tokens, over all possible results
/// of reviews.
template <std::size_t n>
std::int64_t longest(const Limits<n>& limits, std::size_t row, std::size_t i, std::int64_t length,
                     std::int64_t limit) {
  if (i == n) return length;
  limit += limits[row][i];
  if (length >= limit) return longest(limits, row, i + 1, length, limit);
  // A turn: repeated with the appended tokens, at one place to the left of `i`.
  const std::int64_t before = limit - limits[row][i];
  if (i == n - 1) return longest(limits, row, i, length + limits[i][i], before);
  std::int64_t most = 0;
  const std::int64_t appended = longest(limits, i + 1, i + 1, 0, 0) + 1;
  for (std::int64_t more = 1; more <= appended; ++more)
    most = std::max(most, longest(limits, row, i, length + more, before));
  return most;
}

}  // namespace

TEST_CASE("the tables of the paper") {
  CHECK(bounds_of<3>({{{8, 5, 10}, {0, 1, 10}, {0, 0, 10}}}) == std::array<std::int64_t, 3>{32, 20, 10});
  CHECK(bounds_of<1>({{{7}}})[0] == 7);
  CHECK(bounds_of<2>({{{0, 0}, {0, 0}}}) == std::array<std::int64_t, 2>{0, 0});
}

TEST_CASE("bounds against exhaustive search") {
  for (std::int32_t a = 0; a < 5; ++a)
    for (std::int32_t b = 0; b < 4; ++b)
      for (std::int32_t c = 0; c < 4; ++c)
        for (std::int32_t d = 0; d < 3; ++d)
          for (std::int32_t e = 0; e < 3; ++e) {
            const Limits<3> limits{{{a, b, c}, {0, d, e}, {0, 0, 2}}};
            const auto bounds = bounds_of(limits);
            CAPTURE(a * 10000 + b * 1000 + c * 100 + d * 10 + e);
            for (std::size_t row = 0; row < 3; ++row) CHECK(bounds[row] == longest(limits, row, row, 0, 0));
          }
}
