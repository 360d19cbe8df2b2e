// SPDX-License-Identifier: MIT
// ContextAlignment: HASS's training masks.
#include <losses/context_alignment.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace specula;

namespace {

/// A column that the draft has keys and values of: whose feature its input was made with (0: the target's, s:
/// what step s of the round predicted), and where.
using Column = std::pair<std::int32_t, std::int32_t>;  // stream, column

/// Inference, independently: a round whose root is at `root`, with the target's features before it. Each
/// step runs the next column; its input takes the feature of the column before, and it attends to every
/// column up to its own. Returns what step `step` (from 1) attends to.
std::set<Column> inference(std::int32_t root, std::int32_t step) {
  std::vector<std::int32_t> made_of;  // per column, the source of its input feature
  for (std::int32_t column = 0; column <= root; ++column) made_of.push_back(0);
  for (std::int32_t s = 2; s <= step; ++s) made_of.push_back(s - 1);
  std::set<Column> out;
  for (std::size_t column = 0; column < made_of.size(); ++column)
    out.insert({made_of[column], static_cast<std::int32_t>(column)});
  return out;
}

constexpr std::int32_t kRows = 12;

}  // namespace

TEST_CASE("three forward passes, by hand") {
  const ContextAlignment align;
  CHECK(align.forwards == 3);
  CHECK(align.first_row(1) == 0);
  CHECK(align.first_row(3) == 2);
  // Forward 1 is the usual training: causal over the target's features.
  CHECK(align.target_columns(1, 0) == 1);
  CHECK(align.target_columns(1, 4) == 5);
  CHECK(align.column(1, 1, 4) == -1);
  CHECK(align.column(1, 2, 4) == -1);
  // Row 4 of forward 3 is step 3 of the round with its root at 2.
  CHECK(align.target_columns(3, 4) == 3);
  CHECK(align.column(3, 1, 4) == 3);
  CHECK(align.column(3, 2, 4) == 4);
  CHECK(align.sees(3, 4, 0, 2));
  CHECK_FALSE(align.sees(3, 4, 0, 3));
  CHECK_FALSE(align.sees(3, 4, 1, 2));
  CHECK_FALSE(align.sees(3, 4, 2, 3));
  // Row 0 of forward 3 belongs to no round, but sees itself.
  CHECK(align.target_columns(3, 0) == 0);
  CHECK(align.column(3, 1, 0) == -1);
  CHECK(align.column(3, 2, 0) == 0);
  CHECK(align.target_columns(3, 1) == 0);
  CHECK(align.column(3, 1, 1) == 0);
}

TEST_CASE("a row of forward pass j sees what step j of a round sees") {
  for (std::int32_t n = 1; n <= 5; ++n) {
    const ContextAlignment align{.forwards = n};
    for (std::int32_t forward = 1; forward <= n; ++forward)
      for (std::int32_t row = align.first_row(forward); row <= kRows; ++row) {
        CAPTURE(n);
        CAPTURE(forward);
        CAPTURE(row);
        std::int32_t root = row;
        for (std::int32_t step = 1; step < forward; ++step) --root;
        const std::set<Column> want = inference(root, forward);
        std::set<Column> got, listed;
        for (std::int32_t stream = 0; stream < n; ++stream)
          for (std::int32_t column = 0; column <= kRows + n; ++column)
            if (align.sees(forward, row, stream, column)) got.insert({stream, column});
        CHECK(got == want);
        for (std::int32_t column = 0; column < align.target_columns(forward, row); ++column)
          listed.insert({0, column});
        for (std::int32_t stream = 1; stream < n; ++stream)
          if (const std::int32_t column = align.column(forward, stream, row); column >= 0)
            listed.insert({stream, column});
        CHECK(listed == want);
      }
  }
}

TEST_CASE("a row with a loss sees every position up to its own once, and only allowed features") {
  for (std::int32_t n = 1; n <= 5; ++n) {
    const ContextAlignment align{.forwards = n};
    for (std::int32_t forward = 1; forward <= n; ++forward) {
      CHECK(align.first_row(forward) == forward - 1);
      for (std::int32_t row = 0; row <= kRows; ++row) {
        std::multiset<std::int32_t> positions;
        bool from_no_round = false, too_early = false;
        for (std::int32_t stream = 0; stream < n; ++stream)
          for (std::int32_t column = 0; column <= kRows + n; ++column)
            if (align.sees(forward, row, stream, column)) {
              positions.insert(column);
              too_early |= stream >= forward;
              // Computed from the prediction of forward pass `stream` at the column before.
              from_no_round |= stream > 0 && column - 1 < align.first_row(stream);
            }
        CHECK_FALSE(too_early);
        CHECK(align.sees(forward, row, forward - 1, row));  // itself, so no softmax is empty
        if (row < align.first_row(forward)) continue;
        CHECK_FALSE(from_no_round);
        REQUIRE(positions.size() == static_cast<std::size_t>(row) + 1);
        std::int32_t want = 0;
        for (const std::int32_t position : positions) CHECK(position == want++);
      }
    }
  }
}

TEST_CASE("rows before the first of their forward pass see no later columns") {
  const ContextAlignment align{.forwards = 5};
  for (std::int32_t forward = 2; forward <= 5; ++forward)
    for (std::int32_t row = 0; row < align.first_row(forward); ++row) {
      CHECK(align.target_columns(forward, row) == 0);
      for (std::int32_t stream = 1; stream < 5; ++stream) CHECK(align.column(forward, stream, row) <= row);
    }
}

TEST_CASE("values out of range are refused") {
  const ContextAlignment align;
  CHECK_NOTHROW(align.validate());
  CHECK_THROWS_WITH_AS(ContextAlignment{.forwards = 0}.validate(),
                       "ContextAlignment: forwards is 0, must be in [1, 1073741824]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(ContextAlignment{.forwards = 0}.first_row(1),
                       doctest::Contains("ContextAlignment: forwards is 0"), std::invalid_argument);
  CHECK_THROWS_AS(ContextAlignment{.forwards = 0}.target_columns(1, 1), std::invalid_argument);
  CHECK_THROWS_AS(ContextAlignment{.forwards = -1}.sees(1, 0, 0, 0), std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.first_row(0), "ContextAlignment: forward is 0, must be in [1, 3]",
                       std::invalid_argument);
  CHECK_THROWS_AS(align.first_row(4), std::invalid_argument);
  CHECK_THROWS_AS(align.target_columns(4, 0), std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.target_columns(1, -1), doctest::Contains("ContextAlignment: "),
                       std::invalid_argument);
  CHECK_THROWS_AS(align.column(4, 1, 0), std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.column(1, 1, -1), doctest::Contains("ContextAlignment: "),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.column(1, 0, 0), "ContextAlignment: stream is 0, must be in [1, 2]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.column(1, 3, 0), doctest::Contains("ContextAlignment: stream is 3"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.sees(0, 0, 0, 0), doctest::Contains("ContextAlignment: forward is 0"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.sees(1, -1, 0, 0), doctest::Contains("ContextAlignment: "),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.sees(1, 0, 3, 0), "ContextAlignment: stream is 3, must be in [0, 2]",
                       std::invalid_argument);
  CHECK_THROWS_AS(align.sees(1, 0, -1, 0), std::invalid_argument);
  CHECK_THROWS_WITH_AS(align.sees(1, 0, 0, -1), doctest::Contains("ContextAlignment: "),
                       std::invalid_argument);
  CHECK_THROWS_AS(align.sees(1, 0, 1, -1), std::invalid_argument);
}
