// The JSON parser of config files and safetensors headers.
#include <specula/eigen/json.hpp>

#include "specula/eigen/json.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using specula::eigen::Json;

Json parse(std::string_view text) { return Json::parse(text, "text"); }

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("values of every kind") {
  CHECK(parse(" null ").is_null());
  CHECK(*parse("true").boolean());
  CHECK_FALSE(*parse("false").boolean());
  CHECK(parse("-0").integer() == 0);
  CHECK(parse("-9223372036854775808").integer() == INT64_MIN);
  CHECK(parse("9223372036854775807").integer() == INT64_MAX);
  CHECK(parse("9223372036854775808").integer() == std::nullopt);
  CHECK(parse("9223372036854775808").number() == 0x1p63);
  CHECK(parse("1e-06").number() == 1e-6);
  CHECK(parse("1e3").integer() == std::nullopt);
  CHECK(parse("-12.5E+1").number() == -125);
  CHECK(*parse("\"\"").string() == "");
  CHECK(parse("[]").array()->empty());
  CHECK(parse("{}").object()->empty());
  CHECK(parse("[1,[2], {\"a\":3}]").array()->size() == 3);
}

TEST_CASE("members are found by key, and only in objects") {
  const Json json = parse("{\"b\": 1, \"a\": {\"b\": [true]}, \"\": null}");
  REQUIRE(json.find("a"));
  CHECK(json.find("a")->find("b")->array()->size() == 1);
  CHECK(json.find("b")->integer() == 1);
  CHECK(json.find("")->is_null());
  CHECK(json.find("c") == nullptr);
  CHECK(json.find("b")->find("b") == nullptr);
  CHECK(json.number() == std::nullopt);
  CHECK(json.array() == nullptr);
}

TEST_CASE("escapes") {
  CHECK(*parse(R"("\"\\\/\b\f\n\r\t")").string() == "\"\\/\b\f\n\r\t");
  CHECK(*parse(R"("\u0041\u00e9\u20AC\uD83D\ude00")").string() == "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(*parse("\"\\u0000\"").string() == std::string(1, '\0'));
  CHECK(*parse("\"\xe2\x82\xac\"").string() == "\xe2\x82\xac");
}

TEST_CASE("errors of invalid JSON name the offset") {
  CHECK(error_of("") == "text: offset 0: expected a value");
  CHECK(error_of("  ") == "text: offset 2: expected a value");
  CHECK(error_of("tru") == "text: offset 0: expected a value");
  CHECK(error_of("1 2") == "text: offset 2: expected the end of the text");
  CHECK(error_of("01") == "text: offset 1: expected the end of the text");
  CHECK(error_of("+1") == "text: offset 0: expected a value");
  CHECK(error_of(".5") == "text: offset 0: expected a value");
  CHECK(error_of("-") == "text: offset 1: expected a value");
  CHECK(error_of("1.") == "text: offset 2: expected a digit");
  CHECK(error_of("1e+") == "text: offset 3: expected a digit");
  CHECK(error_of("1e999") == "text: offset 5: the number before is out of range");
  CHECK(error_of("NaN") == "text: offset 0: expected a value");
  CHECK(error_of("[1,]") == "text: offset 3: expected a value");
  CHECK(error_of("[1 2]") == "text: offset 3: expected ',' or ']'");
  CHECK(error_of("[1") == "text: offset 2: expected ',' or ']'");
  CHECK(error_of("{\"a\":1,}") == "text: offset 7: expected a key in double quotes");
  CHECK(error_of("{'a':1}") == "text: offset 1: expected a key in double quotes");
  CHECK(error_of("{\"a\" 1}") == "text: offset 5: expected ':' after key \"a\"");
  CHECK(error_of("{\"a\":1") == "text: offset 6: expected ',' or '}'");
  CHECK(error_of("{\"a\":1,\"b\":2,\"a\":3}") ==
        "text: offset 19: key \"a\" occurs twice in the object that ends here");
  CHECK(error_of("\"a") == "text: offset 2: expected '\"' at the end of a string");
  CHECK(error_of("\"a\nb\"") == "text: offset 2: control character in a string");
  CHECK(error_of("\"\\x\"") == "text: offset 2: unknown escape in a string");
  CHECK(error_of("\"\\u12g4\"") == "text: offset 3: expected four hexadecimal digits");
  CHECK(error_of("\"\\u12") == "text: offset 3: expected four hexadecimal digits");
  CHECK(error_of("\"\\ud800x\"") == "text: offset 7: expected the second half of a surrogate pair");
  CHECK(error_of("\"\\ud800\\u0041\"") == "text: offset 13: expected the second half of a surrogate pair");
  CHECK(error_of("\"\\udc00\"") == "text: offset 7: second half of a surrogate pair without the first");
  CHECK(error_of("\"\\") == "text: offset 2: unknown escape in a string");
  CHECK(error_of("// no\n1") == "text: offset 0: expected a value");
}

TEST_CASE("summaries of values in messages are short") {
  for (const char* same : {"null", "true", "false", "-3", "\"x\"", "[\"x\"]", "[7]"})
    CHECK(parse(same).summary() == same);
  CHECK(parse("0.5").summary() == "0.5");
  CHECK(parse("[1,2]").summary() == "an array of 2");
  CHECK(parse("[[1]]").summary() == "an array of 1");
  CHECK(parse("[]").summary() == "an array of 0");
  CHECK(parse("{\"a\":[1]}").summary() == "an object of 1 keys");
  CHECK(parse('"' + std::string(1000, 'x') + '"').summary() == '"' + std::string(40, 'x') + "...\"");
}

TEST_CASE("nesting depth is limited") {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  CHECK(parse(nested(64)).array());
  CHECK(error_of(nested(66)) == "text: offset 65: nested deeper than 64");
  CHECK(error_of(std::string(1000000, '[')) == "text: offset 65: nested deeper than 64");
}

}  // namespace
