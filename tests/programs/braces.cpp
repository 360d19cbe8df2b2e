// SPDX-License-Identifier: MIT
// Brace expansion of pipeline names.
#include "braces.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "errors.hpp"

using namespace specula_tools;

using Names = std::vector<std::string>;

TEST_CASE("alternatives, ranges and products; the last braces vary fastest") {
  CHECK(expand_braces("chain:5@hass") == Names{"chain:5@hass"});
  CHECK(expand_braces("chain:{2,3}@{small,base}") ==
        Names{"chain:2@small", "chain:2@base", "chain:3@small", "chain:3@base"});
  CHECK(expand_braces("chain:{3..5}") == Names{"chain:3", "chain:4", "chain:5"});
  CHECK(expand_braces("{5..4}x") == Names{"5x", "4x"});
  CHECK(expand_braces("{-1..1}") == Names{"-1", "0", "1"});
  CHECK(expand_braces("{2147483647..2147483647}") == Names{"2147483647"});
  CHECK(expand_braces("chain:4:exits={0.3,0.5}-0@s2d") ==
        Names{"chain:4:exits=0.3-0@s2d", "chain:4:exits=0.5-0@s2d"});
}

TEST_CASE("empty, single and nested alternatives") {
  CHECK(expand_braces("chain{,:exit=0.6}") == Names{"chain", "chain:exit=0.6"});
  CHECK(expand_braces("{a}") == Names{"a"});
  CHECK(expand_braces("{}") == Names{""});
  CHECK(expand_braces("{a,b{1,2}c}d") == Names{"ad", "b1cd", "b2cd"});
  CHECK(expand_braces("{{1..2},9}") == Names{"1", "2", "9"});
  CHECK(expand_braces("{1..}") == Names{"1.."});  // not a range: text
  CHECK(expand_braces("{1..x}") == Names{"1..x"});
}

TEST_CASE("lists are split at the commas outside of braces") {
  CHECK(expand_list(" a  b:{1,2} c@d,e\n") == Names{"a", "b:1", "b:2", "c@d,e"});
  CHECK_THROWS_WITH_AS(expand_list("a {,b}"), "'a {,b}': an empty name", UsageError);
  CHECK_THROWS_WITH_AS(expand_list(" "), "' ': no name", UsageError);
  CHECK_THROWS_AS(expand_list(""), UsageError);
  CHECK(split_list("a,{b,c") == Names{"a", "{b", "c"});
  CHECK_THROWS_WITH_AS(split_list("a,,b"), "'a,,b': an empty name between commas", UsageError);
}

TEST_CASE("unbalanced braces, and too many names") {
  CHECK_THROWS_WITH_AS(expand_braces("chain:{2,3"), "'chain:{2,3': a { without its }", UsageError);
  CHECK_THROWS_WITH_AS(expand_braces("a}{b"), "'a}{b': a } without its {", UsageError);
  CHECK_THROWS_WITH_AS(expand_list("a b}"), "'b}': a } without its {", UsageError);
  CHECK_THROWS_AS(expand_braces("{1..10001}"), UsageError);
  CHECK_THROWS_AS(expand_braces("{-2147483648..2147483647}"), UsageError);
  CHECK_THROWS_AS(expand_braces("{1..101}{1..100}"), UsageError);
  CHECK(expand_braces("{1..100}{1..100}").size() == 10000);
  CHECK(expand_braces("{1..10000}").size() == 10000);
}
