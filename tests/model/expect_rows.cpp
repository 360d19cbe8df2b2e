// SPDX-License-Identifier: MIT
// expect_rows(): checks of the rows that a model returns.
#include <specula/model/expect_rows.hpp>

#include <doctest/doctest.h>

using specula::LogitsView;
using specula::detail::expect_rows;
using Error = std::invalid_argument;

TEST_CASE("a valid view has one row per node, as wide as the vocabulary, without overlaps") {
  expect_rows("the draft", {.rows = 0, .vocab = 4}, 0, 4);
  expect_rows("the draft", {.rows = 1, .vocab = 4}, 1, 4);  // a single row overlaps none
  expect_rows("the draft", {.rows = 2, .vocab = 4, .stride = 4}, 2, 4);
  expect_rows("the draft", {.rows = 2, .vocab = 4, .stride = -4}, 2, 4);
  CHECK_THROWS_WITH_AS(expect_rows("the draft", {.rows = 3, .vocab = 4, .stride = 4}, 2, 4),
                       "the draft gave 3 rows of 4 logits for 2 nodes over 4 tokens", Error);
  CHECK_THROWS_WITH_AS(
      expect_rows("the target", {.rows = -1, .vocab = 4}, std::size_t(-1), 4, "for a path of"),
      "the target gave -1 rows of 4 logits for a path of 18446744073709551615 nodes over 4 tokens", Error);
  CHECK_THROWS_WITH_AS(
      expect_rows("it", {.rows = 1, .vocab = 5}, 1, 4, [] { return std::string("at exit 1 for"); }),
      "it gave 1 rows of 5 logits at exit 1 for 1 nodes over 4 tokens", Error);
  for (const std::ptrdiff_t stride : {0, 3, -3})
    CHECK_THROWS_WITH_AS(
        expect_rows("the draft", {.rows = 2, .vocab = 4, .stride = stride}, 2, 4),
        ("the draft's rows of 4 logits are " + std::to_string(stride) + " floats apart: they overlap")
            .c_str(),
        Error);
}
