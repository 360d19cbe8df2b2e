// SPDX-License-Identifier: MIT
// JsonFields: values by type; what is missing, of another type or out of range is an error that names it.
#include <specula/files/json_fields.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

using specula::files::Json;
using specula::files::JsonFields;

namespace {

Json sample() {
  return specula::files::parse_json(R"({"n": 7, "big": 2147483648, "negative": -1, "half": 0.5, "on": true,
      "word": "so", "list": [1, 2], "mixed": [1, "x"], "none": null, "inner": {"n": 1}, "all": [{"n": 3}, {}]})",
                                    "sample.json");
}

/// The message of what f throws.
template <class F>
std::string message(F f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("values that are there, and what is taken for those that are not: null is none") {
  const Json json = sample();
  const JsonFields fields(json, "sample.json");
  CHECK(fields.integer("n") == 7);
  CHECK(fields.integer("absent", 5) == 5);
  CHECK(fields.integer("none", 5) == 5);
  CHECK(fields.number("half") == 0.5);
  CHECK(fields.number("n", 1) == 7);
  CHECK(fields.flag("on"));
  CHECK(fields.flag("none", true));
  CHECK(fields.text("word") == "so");
  CHECK(fields.text("absent", "else") == "else");
  CHECK(fields.integers("list") == std::vector<std::int32_t>{1, 2});
  CHECK(fields.integers("absent").empty());
  CHECK(fields.one_or_more("list") == std::vector<std::int32_t>{1, 2});
  CHECK(fields.one_or_more("n") == std::vector<std::int32_t>{7});
  CHECK(fields.object("inner").integer("n") == 1);
  CHECK(fields.objects("all").size() == 2);
  CHECK(fields.find("none") == nullptr);
  CHECK(fields.is_null("none"));
  CHECK_FALSE(fields.is_null("absent"));
}

TEST_CASE("errors name file, key, what was expected and what was found") {
  const Json json = sample();
  const JsonFields fields(json, "f");
  CHECK(message([&] { JsonFields(json["n"], "f"); }) == "f: expected a JSON object, found 7");
  CHECK(message([&] { fields.integer("absent"); }) == "f: key 'absent': missing, expected an integer");
  CHECK(message([&] { fields.integer("none"); }) == "f: key 'none': missing, expected an integer");
  CHECK(message([&] { fields.integer("word"); }) ==
        "f: key 'word': expected an integer from 0 to 2147483647, found \"so\"");
  CHECK(message([&] { fields.integer("half"); }) ==
        "f: key 'half': expected an integer from 0 to 2147483647, found 0.5");
  CHECK(message([&] { fields.integer("big", 1); }) ==
        "f: key 'big': expected an integer from 0 to 2147483647, found 2147483648");
  CHECK(message([&] { fields.integer("negative"); }) ==
        "f: key 'negative': expected an integer from 0 to 2147483647, found -1");
  CHECK(message([&] { fields.integers("mixed"); }) ==
        "f: key 'mixed': expected integers from 0 to 2147483647, found \"x\"");
  CHECK(message([&] { fields.integers("n"); }) == "f: key 'n': expected an array of integers, found 7");
  CHECK(message([&] { fields.one_or_more("word"); }) ==
        "f: key 'word': expected an integer or an array of them, from 0 to 2147483647, found \"so\"");
  CHECK(message([&] { fields.number("absent"); }) == "f: key 'absent': missing, expected a number");
  CHECK(message([&] { fields.number("on", 1); }) == "f: key 'on': expected a number, found true");
  CHECK(message([&] { fields.flag("n"); }) == "f: key 'n': expected true or false, found 7");
  CHECK(message([&] { fields.text("absent"); }) == "f: key 'absent': missing, expected a string");
  CHECK(message([&] { fields.text("n", "x"); }) == "f: key 'n': expected a string, found 7");
  CHECK(message([&] { fields.object("list"); }) == "f: key 'list': expected an object, found an array of 2");
  CHECK(message([&] { fields.object("absent"); }) == "f: key 'absent': missing, expected an object");
}

TEST_CASE("a text or a list of them") {
  const Json json =
      specula::files::parse_json(R"({"one": "a", "few": ["a", "b"], "no": [], "mixed": ["a", 1]})", "f");
  const JsonFields fields(json, "f");
  CHECK(fields.texts("one") == std::vector<std::string>{"a"});
  CHECK(fields.texts("few") == std::vector<std::string>{"a", "b"});
  CHECK(fields.texts("no").empty());
  CHECK(fields.texts("absent").empty());
  CHECK(message([&] { fields.texts("mixed"); }) ==
        "f: key 'mixed': expected a string or an array of them, found 1");
  const Json number = {{"n", 7}};
  CHECK(message([&] { JsonFields(number, "f").texts("n"); }) == "f: key 'n': expected a string, found 7");
}

TEST_CASE("numbers of a range") {
  const Json json = sample();
  const JsonFields fields(json, "f");
  CHECK(fields.integer("n", 1, -7, 7) == 7);
  CHECK(fields.integer("absent", 99, 1, 7) == 99);
  CHECK(fields.integer<std::int64_t>("big", 1, 0, 1LL << 53) == 2147483648);
  CHECK(fields.number("half", 1.0f, 0.0f, 0.5f) == 0.5f);
  CHECK(fields.number("n", 1.0, 7.0, 9.0) == 7);
  CHECK(fields.number("none", 3.0, 0.0, 1.0) == 3);
  CHECK(message([&] { fields.integer("n", 1, 8, 9); }) ==
        "f: key 'n': expected an integer from 8 to 9, found 7");
  CHECK(message([&] { fields.integer("half", 1, 0, 9); }) ==
        "f: key 'half': expected an integer from 0 to 9, found 0.5");
  CHECK(message([&] { fields.number("half", 1.0f, 0.75f, 2.0f); }) ==
        "f: key 'half': expected a number from 0.75 to 2, found 0.5");
  CHECK(message([&] { fields.number("word", 1.0f, 0.0f, 2.0f); }) ==
        "f: key 'word': expected a number from 0 to 2, found \"so\"");
}

TEST_CASE("errors inside an object or an array name the way there") {
  const Json json = sample();
  const JsonFields fields(json, "f");
  CHECK(message([&] { fields.object("inner").integer("m"); }) ==
        "f: key 'inner': key 'm': missing, expected an integer");
  CHECK(message([&] { fields.objects("all")[1].integer("n"); }) ==
        "f: key 'all', 1: key 'n': missing, expected an integer");
  CHECK(message([&] { fields.objects("list"); }) == "f: key 'list', 0: expected a JSON object, found 1");
}
