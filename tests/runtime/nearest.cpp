// SPDX-License-Identifier: MIT
// The names nearest to a misspelt one.
#include <specula/runtime/nearest.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using specula::edit_distance;
using specula::nearest;
using Names = std::vector<std::string>;

TEST_CASE("distances: insertions, deletions and replacements, in either direction") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("sitting", "kitten") == 3);
  CHECK(edit_distance("same", "same") == 0);
}

TEST_CASE("the nearest first, of equal distance in their own order; those that contain the word before all") {
  const Names names{"chain", "cape", "sampled-chain", "cascade"};
  CHECK(nearest("chian", names, 2) == Names{"chain", "cape"});
  CHECK(nearest("cascad", names, 1) == Names{"cascade"});
  CHECK(nearest("sampled", names, 1) == Names{"sampled-chain"});
  CHECK(nearest("x", names, 9).size() == 4);
  CHECK(nearest("CHIAN", names, 2) == Names{"chain", "cape"});
  CHECK(nearest("", Names{"b", "a"}, 2) == Names{"b", "a"});
  CHECK(nearest("x", names, 0).empty());
}
