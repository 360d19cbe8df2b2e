// SPDX-License-Identifier: MIT
// Measurement and JSON output of the GPU programs in bench/cuda.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "../../bench/cuda/measure.hpp"

using namespace specula_bench;

TEST_CASE("the median of replays ignores one slow replay") {
  CHECK(median({3}) == 3);
  CHECK(median({5, 1, 3}) == 3);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(median({10, 11, 9, 1000, 10}) == 10);
  CHECK(std::isnan(median({})));
}

TEST_CASE("the worse of two errors: NaN is never lost") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(worse(1, 2) == 2);
  CHECK(worse(2, 1) == 2);
  CHECK(std::isnan(worse(nan, 1)));
  CHECK(std::isnan(worse(1, nan)));
  CHECK(std::isnan(worse(worse(0, nan), 3)));
}

TEST_CASE("of two measurements the slower one is reported, with their spread") {
  CHECK(Twice{10, 11}.slower() == 11);
  CHECK(Twice{11, 10}.slower() == 11);
  CHECK(Twice{11, 10}.spread() == doctest::Approx(0.1));
  CHECK(Twice{10, 11}.spread() == doctest::Approx(0.1));
  CHECK(Twice{7, 7}.spread() == 0);
}

TEST_CASE("chi-square as a normal deviate") {
  // Quantiles of the table: 99.99% of 5 degrees of freedom are below 25.74, of 100 below 161.3; the medians.
  CHECK(chi_square_deviate(25.74, 5) == doctest::Approx(3.72).epsilon(0.02));
  CHECK(chi_square_deviate(161.3, 100) == doctest::Approx(3.72).epsilon(0.01));
  CHECK(std::abs(chi_square_deviate(99.33, 100)) < 0.01);
  CHECK(chi_square_deviate(70, 100) < -2);
}

TEST_CASE("JSON: nested, quoted, and closed at any time") {
  Json json;
  json.begin_object().field("a", 1).field("b", true).field("text", "say \"x\\y\"\n\x1f");
  json.key("list").begin_array().value(1.5).value(-2).begin_object().end().end();
  const std::string open =
      "{\n \"a\": 1,\n \"b\": true,\n \"text\": \"say \\\"x\\\\y\\\"\\u000a\\u001f\",\n \"list\": [\n  "
      "1.5,\n  "
      "-2,\n  {}\n ]";
  CHECK(json.text() == open + "}\n");
  json.key("more").begin_object().field("none", std::numeric_limits<double>::quiet_NaN());
  json.field("infinite", std::numeric_limits<double>::infinity());
  CHECK(json.text() == open + ",\n \"more\": {\n  \"none\": null,\n  \"infinite\": null}}\n");
  json.end().end();
  CHECK(json.text() == open + ",\n \"more\": {\n  \"none\": null,\n  \"infinite\": null\n }\n}\n");
}

TEST_CASE("JSON: numbers of every width, lists of values") {
  Json json;
  json.begin_object().field("seed", 18446744073709551615ull).field("low", -9223372036854775807ll);
  json.values("times", std::vector<double>{0.1, 123456789}).values("none", std::vector<int>{}).end();
  CHECK(json.text() ==
        "{\n \"seed\": 18446744073709551615,\n \"low\": -9223372036854775807,\n \"times\": [\n  0.1,\n  "
        "123456789\n ],\n \"none\": []\n}\n");
}

TEST_CASE("JSON: what is open is closed in its order") {
  Json json;
  json.begin_object().key("a").begin_object().key("list").begin_array().value(1);
  CHECK(json.text() == "{\n \"a\": {\n  \"list\": [\n   1]}}\n");
}

TEST_CASE("JSON is saved whole") {
  const std::string path = (std::filesystem::temp_directory_path() / "specula_bench_measure.json").string();
  Json json;
  json.begin_object().field("x", 1);
  REQUIRE(json.save(path));
  json.field("y", 2);
  REQUIRE(json.save(path));
  std::ifstream file(path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == json.text());
  CHECK(!std::ifstream(path + ".part"));
  // If the new file cannot be written, the old one is kept.
  std::filesystem::create_directory(path + ".part");
  Json other;
  other.begin_object().end();
  CHECK(!other.save(path));
  std::ifstream still(path);
  CHECK(std::string(std::istreambuf_iterator<char>(still), {}) == json.text());
  std::filesystem::remove(path + ".part");
  std::filesystem::remove(path);
  CHECK(!json.save("/nowhere/at/all.json"));
}

TEST_CASE("bars pass at their limit and fail beyond it") {
  const Bar fast = time_bar("x", 12, {11.9, 12.0}, 3e6, 3e12),
            slow = time_bar("x", 12, {11, 12.1}, 3e6, 3e12);
  CHECK(fast.passes());
  CHECK(fast.value == 12);
  CHECK(fast.floor == doctest::Approx(1));
  CHECK(std::string(fast.result()) == "pass");
  CHECK(!slow.passes());
  CHECK(slow.ratio() == doctest::Approx(12.1 / 12));
  CHECK(std::string(slow.result()) == "FAIL");

  Bar share = fast;
  share.kind = Bar::Kind::at_least;
  share.limit = 0.8;
  share.value = 0.85;
  CHECK(share.passes());
  share.value = 0.75;
  CHECK(!share.passes());
  CHECK(share.ratio() > 1);

  share.next = 0.9;
  share.value = 0.85;
  CHECK(share.passes());
  CHECK(!share.passes_next());
  share.value = 0.9;
  CHECK(share.passes_next());
  CHECK(std::string(share.result()) == "pass, the next too");
  Bar faster = slow;
  faster.next = 10;
  CHECK(!faster.passes_next());
  faster.value = 10;
  CHECK(faster.passes_next());
  CHECK(!fast.passes_next());

  const Bar shown = time_bar("x", 0, {11, 12}, 1, 1);
  CHECK(!shown.has_limit());
  CHECK(!shown.passes());
  CHECK(std::string(shown.result()).empty());
  const Bar missing = missing_bar("x", 3, "x", "needs the peer");
  CHECK(!missing.passes());
  CHECK(std::string(missing.result()) == "not measured");
}

TEST_CASE("a bar in the table and as JSON") {
  Bar bar = time_bar("work", 28, {25, 26}, 82e6, 4.1e12);
  CHECK(table_row(bar) ==
        "| work | 26.00 | 4.0% | 82.00 | 20.00 | 1.30 | 26 us | <= 28 us | 0.93 | pass |\n");
  bar.kind = Bar::Kind::at_least;
  bar.value = 400;
  bar.limit = 380;
  bar.unit = "TFLOP/s";
  CHECK(table_row(bar) ==
        "| work | 26.00 | 4.0% | 82.00 | 20.00 | 1.30 | 400 TFLOP/s | >= 380 TFLOP/s | 0.95 | pass |\n");
  bar.next = 450;
  CHECK(table_row(bar) ==
        "| work | 26.00 | 4.0% | 82.00 | 20.00 | 1.30 | 400 TFLOP/s | >= 380, then 450 TFLOP/s | 0.95 | pass "
        "|\n");
  Json with_next;
  write_bar(with_next, bar);
  CHECK(with_next.text().find("\"next_limit\": 450") != std::string::npos);
  CHECK(with_next.text().find("\"next_pass\": false") != std::string::npos);
  CHECK(table_row(time_bar("work", 0, {25, 26}, 82e6, 4.1e12)) ==
        "| work | 26.00 | 4.0% | 82.00 | 20.00 | 1.30 | 26 us |  |  |  |\n");
  CHECK(table_row(missing_bar("work", 3, "x", "needs the peer")) ==
        "| work | | | | | | | | | needs the peer |\n");
  const auto columns = [](const std::string& row) { return std::count(row.begin(), row.end(), '|'); };
  CHECK(columns(table_head()) == 2 * columns(table_row(bar)));
  CHECK(columns(table_row(missing_bar("work", 3, "x", ""))) == columns(table_row(bar)));

  Json json;
  write_bar(json, bar);
  for (const char* part :
       {"\"name\": \"work\"", "\"value\": 400", "\"limit\": 380", "\"bound\": \"at least\"", "\"pass\": true",
        "\"us_first\": 25", "\"us_second\": 26", "\"floor_us\": 20"})
    CHECK(json.text().find(part) != std::string::npos);
  Json none;
  write_bar(none, missing_bar("work", 3, "x", "needs the peer"));
  for (const char* part : {"pass", "value", "us_first"}) CHECK(none.text().find(part) == std::string::npos);
  CHECK(none.text().find("needs the peer") != std::string::npos);
}
