// SPDX-License-Identifier: MIT
// labels: long
// specula run --race on a wide terminal: two runs side by side.
#include "panes.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

using namespace specula_tools;

namespace {

const Paint kPlain(false), kColored(true);

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

Recording slow() {
  return {"plain decoding", {{0.1, 1, "", "One "}, {0.2, 2, "", "two "}, {0.4, 3, "", "three\nfour"}}};
}
Recording quick() { return {"chain", {{0.1, 2, "One ", "two "}, {0.2, 3, "three", "\nfour"}}}; }

}  // namespace

TEST_CASE("both runs at a time, with their speeds until then") {
  const auto lines = lines_of(side_by_side(slow(), quick(), 0.25, 73, 3, kPlain));
  REQUIRE(lines.size() == 5);
  const std::string pad(35 - 8, ' ');
  CHECK(lines[0] == "plain decoding" + std::string(21, ' ') + " | chain" + std::string(30, ' '));
  CHECK(lines[1] ==
        "8.0 tokens/s, 2 tokens in 0.25 s   "
        " | "
        "15.0 tokens/s, 3 tokens in 0.20 s, ");
  CHECK(lines[2] == "One two " + pad + " | One two three" + std::string(22, ' '));
  CHECK(lines[3] == std::string(35, ' ') + " | four" + std::string(31, ' '));
  CHECK(lines[4] == std::string(35, ' ') + " | " + std::string(35, ' '));
}

TEST_CASE("a run that has ended keeps its time") {
  const std::string end = side_by_side(slow(), quick(), 9, 100, 0, kPlain);
  CHECK(end.find("7.5 tokens/s, 3 tokens in 0.40 s, done") != std::string::npos);
  CHECK(end.find("15.0 tokens/s, 3 tokens in 0.20 s, done") != std::string::npos);
  const std::string begin = side_by_side(slow(), quick(), 0, 100, 0, kPlain);
  CHECK(begin.find("0.0 tokens/s, 0 tokens in 0.00 s ") != std::string::npos);
  CHECK(begin.find("One") == std::string::npos);
  CHECK(lines_of(side_by_side({"a", {}}, {"b", {}}, 0, 100, 0, kPlain)).size() == 2);
}

TEST_CASE("texts longer than the height show their ends; height 0 shows all") {
  const Recording run{"a", {{0.1, 1, "", "1\n2\n3\n4\n5"}}};
  const auto lines = lines_of(side_by_side(run, run, 1, 43, 2, kPlain));
  REQUIRE(lines.size() == 4);
  CHECK(lines[2].starts_with("4 "));
  CHECK(lines[3].starts_with("5 "));
  CHECK(lines_of(side_by_side(run, run, 1, 43, 0, kPlain)).size() == 7);
}

TEST_CASE("lines break at the pane's width, by columns and not by bytes") {
  // A pane of 10 columns: six letters e with an accent of their own, and wide characters.
  const Recording run{
      "a",
      {{0.1, 1, "",
        "abcdefghijkl\ne\u0301e\u0301e\u0301\u00e9\u00e9\u00e9\n\u6f22\u6f22\u6f22\u6f22\u6f22\u6f22"}}};
  const auto lines = lines_of(side_by_side(run, {"b", {}}, 1, 23, 0, kPlain));
  REQUIRE(lines.size() == 7);
  const std::string empty = " | " + std::string(10, ' ');
  CHECK(lines[2] == "abcdefghij" + empty);
  CHECK(lines[3] == "kl        " + empty);
  CHECK(lines[4] == "e\u0301e\u0301e\u0301\u00e9\u00e9\u00e9    " + empty);
  CHECK(lines[5] == "\u6f22\u6f22\u6f22\u6f22\u6f22" + empty);
  CHECK(lines[6] == "\u6f22        " + empty);
}

TEST_CASE("no control character of a text reaches the terminal") {
  const Recording run{"a", {{0.1, 1, "\x1b[2J", "\r\x07\u009b\u202e\tx"}}};
  const std::string text = side_by_side(run, run, 1, 83, 0, kPlain);
  CHECK(text.find_first_of("\x1b\r\x07\t") == std::string::npos);
  CHECK(text.find("\u009b") == std::string::npos);
  CHECK(text.find("\u202e") == std::string::npos);
  CHECK(text.find("\ufffd[2J\ufffd\ufffd\ufffd\ufffd    x") != std::string::npos);
}

TEST_CASE("accepted draft tokens are green, also where a line breaks") {
  const Recording run{"a", {{0.1, 3, "abcdefghijkl", "mn"}}};
  const std::string text = side_by_side({"b", {}}, run, 1, 23, 0, kColored);
  CHECK(text.find("\x1b[32mabcdefghij\x1b[0m\n") != std::string::npos);
  CHECK(text.find("\x1b[32mkl\x1b[0mmn      \n") != std::string::npos);
}

TEST_CASE("how fast to show a run") {
  CHECK(replay_pace(0) == 1);
  CHECK(replay_pace(2) == 1);
  CHECK(replay_pace(20) == 1);
  CHECK(replay_pace(0.9) == 0.25);
  CHECK(replay_pace(21) == 2);
  CHECK(replay_pace(100) == 8);
}

TEST_CASE("a replay ends with both whole texts") {
  std::ostringstream out;
  replay(slow(), quick(), {100, 12}, kPlain, out);
  const std::string text = out.str(), end = side_by_side(slow(), quick(), 0.4, 99, 0, kPlain);
  CHECK(text.starts_with("measured one after the other, shown 8 times slower\n"));
  CHECK(text.ends_with("\x1b[J" + end + "\n"));
  CHECK(text.find("\x1b[32m") == std::string::npos);
}
