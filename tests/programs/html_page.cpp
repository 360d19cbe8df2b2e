// SPDX-License-Identifier: MIT
// labels: long
// Pages with JSON inside: nothing in the JSON can end its element.
#include "html_page.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

using namespace specula_tools;

TEST_CASE("JSON in a script element is ASCII without <, > and &, and reads back unchanged") {
  const std::string odd = "</script><b>&amp;<!-- \u2028 \u00e9 \xf0\x9f\x98\x80 \"\\\n\t\x01";
  const nlohmann::ordered_json json{{odd, {odd, 1.5, nullptr}}};
  const std::string text = script_json(json);
  CHECK(text.find_first_of("<>&") == std::string::npos);
  CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; }));
  CHECK(nlohmann::ordered_json::parse(text) == json);
}

TEST_CASE("bytes that are no UTF-8 become U+FFFD") {
  const std::string text = script_json({{"file", "p\xff.jsonl"}});
  CHECK(nlohmann::ordered_json::parse(text)["file"] == "p\ufffd.jsonl");
}

TEST_CASE("the JSON takes the place of @DATA@") {
  CHECK(html_page("<p>@DATA@</p>", {1, 2}) == "<p>[1,2]</p>");
  CHECK(html_page("@DATA@", "@DATA@") == "\"@DATA@\"");
  CHECK_THROWS_AS(html_page("<p></p>", {1}), std::invalid_argument);
}
