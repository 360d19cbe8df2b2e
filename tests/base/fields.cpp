// SPDX-License-Identifier: MIT
// Range checks: what is refused, and that the message has the name, the value and the range.
#include <specula/base/fields.hpp>

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <stdexcept>

#include <specula/base/rows.hpp>

using namespace specula::detail;

TEST_CASE("expect_in takes the ends of the range, and refuses what is beyond them and NaN") {
  expect_in("x", 1, 1, 3);
  expect_in("x", 3, 1, 3);
  CHECK_THROWS_WITH_AS(expect_in("x", 0, 1, 3), "x is 0, must be in [1, 3]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(expect_in("x", 4, 1, 3), "x is 4, must be in [1, 3]", std::invalid_argument);
  CHECK_THROWS_WITH_AS(expect_in("x", std::numeric_limits<double>::quiet_NaN(), 0.0, 0.5),
                       "x is nan, must be in [0, 0.5]", std::invalid_argument);
}

TEST_CASE("fixed() rounds as printf does, and pads") {
  CHECK(fixed(0.125, 2) == "0.12");
  CHECK(fixed(-2.5, 1, 6) == "  -2.5");
  CHECK(fixed(std::numeric_limits<double>::max(), 2).size() == 312);
  CHECK(fixed(std::numeric_limits<double>::quiet_NaN(), 2, 4) == " nan");
}

TEST_CASE("expect_all_in names the first bad entry") {
  expect_all_in("counts", std::array{0, 2}, 0, 2);
  CHECK_THROWS_WITH_AS(expect_all_in("counts", std::array{0, 3, 4}, 0, 2),
                       "counts[1] is 3, must be in [0, 2]", std::invalid_argument);
}

TEST_CASE("a number of nodes that is too large does not overflow, and is refused") {
  struct Shape {
    std::int64_t most;
    specula::NodeCounts nodes() const { return {node_count(most)}; }
  };
  expect_nodes("Shape", Shape{kMaxNodes});
  for (const std::int64_t nodes : {std::int64_t{kMaxNodes} + 1, std::numeric_limits<std::int64_t>::max()})
    CHECK_THROWS_WITH_AS(expect_nodes("Shape", Shape{nodes}),
                         "Shape: nodes().most is 16777216, must be in [1, 16777215]", std::invalid_argument);
  CHECK_THROWS_AS(expect_nodes("Shape", Shape{-5}), std::invalid_argument);
}

TEST_CASE("a policy's own validate() is called, if it has one") {
  struct Bad {
    void validate() const { throw std::invalid_argument("bad"); }
  };
  struct Plain {
    int x = 7;
  };
  CHECK_THROWS_WITH_AS(validated(Bad{}), "bad", std::invalid_argument);
  CHECK(validated(Plain{}).x == 7);
}
