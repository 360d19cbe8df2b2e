// SPDX-License-Identifier: MIT
// The JSON parser of config files and safetensors headers.
#include <specula/files/json.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using specula::files::Json;
using specula::files::detail::integer;
using specula::files::detail::summary;

Json parse(std::string_view text) { return specula::files::parse_json(text, "text"); }

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("values of every kind") {
  CHECK(parse(R"( [null, true, -1.5e1, "é\n", [], {"b": {}, "a": [1]}] )") ==
        Json{nullptr, true, -15.0, "\u00e9\n", Json::array(), {{"a", {1}}, {"b", Json::object()}}});
  CHECK(parse("1e-06") == 1e-6);
}

TEST_CASE("integers are those that fit 64 bits") {
  CHECK(integer(parse("-0")) == 0);
  CHECK(integer(parse("-9223372036854775808")) == INT64_MIN);
  CHECK(integer(parse("9223372036854775807")) == INT64_MAX);
  for (const char* other : {"9223372036854775808", "-9223372036854775809", "1e3", "1.0", "true", "\"1\""})
    CHECK(integer(parse(other)) == std::nullopt);
}

TEST_CASE("what is not JSON is named with its offset") {
  CHECK(error_of("").find("text: offset 0: ") == 0);
  CHECK(error_of("[1 2]").find("text: offset 3: ") == 0);
  CHECK(error_of("[1,\n  2,]").find("text: offset 8: ") == 0);
  CHECK(error_of("[1e999]").find("text: offset 5: number overflow") == 0);
  for (const char* bad :
       {"  ",         "tru",         "1 2",          "01",          "+1",       ".5",
        "-",          "1.",          "1e+",          "NaN",         "[1,]",     "[1",
        "{\"a\":1,}", "{'a':1}",     "{\"a\" 1}",    "{\"a\":1",    "\"a",      "\"a\nb\"",
        "\"\\x\"",    "\"\\u12g4\"", "\"\\ud800x\"", "\"\\udc00\"", "// no\n1", "\"\xff\""}) {
    CAPTURE(bad);
    CHECK(error_of(bad).find("text: offset ") == 0);
  }
}

TEST_CASE("a key that an object has twice is refused, in each object alone") {
  CHECK(error_of(R"({"a":1,"b":2,"a":3})") == "text: key \"a\" occurs twice in an object");
  CHECK(error_of(R"([{"b":{"c":[{"a":1,"a":1}]}}])") == "text: key \"a\" occurs twice in an object");
  CHECK(error_of(R"({"\u0061":null,"a":null})") == "text: key \"a\" occurs twice in an object");
  CHECK(parse(R"({"a":{"a":[{"a":1},{"a":2}]},"b":3})")["a"]["a"][1]["a"] == 2);
}

TEST_CASE("depth is limited") {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(parse(nested(65)).is_array());
  CHECK(error_of(nested(66)) == "text: nested deeper than 64");
  CHECK(error_of(std::string(1000000, '[')) == "text: nested deeper than 64");
}

TEST_CASE("a summary for messages is short, whatever the value") {
  for (const char* same : {"null", "true", "false", "-3", "0.5", "\"x\"", "[\"x\"]", "[7]"})
    CHECK(summary(parse(same)) == same);
  CHECK(summary(parse("[1,2]")) == "an array of 2");
  CHECK(summary(parse("[[1]]")) == "an array of 1");
  CHECK(summary(parse("[]")) == "an array of 0");
  CHECK(summary(parse("{\"a\":[1]}")) == "an object of 1 keys");
  CHECK(summary(parse('"' + std::string(1000, 'x') + '"')) == '"' + std::string(40, 'x') + "...\"");
}

}  // namespace
