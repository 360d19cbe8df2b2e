// SPDX-License-Identifier: MIT
// Streaming of UTF-8 text and stop strings.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "text_stream.hpp"
#include "utf8_gate.hpp"

using specula_tools::StopStrings;
using specula_tools::TextStream;
using specula_tools::Utf8Gate;

namespace {

std::string byte_by_byte(std::string_view bytes) {
  Utf8Gate gate;
  std::string out;
  for (const char byte : bytes) out += gate.push({&byte, 1});
  return out + gate.flush();
}

}  // namespace

TEST_CASE("complete characters pass immediately") {
  Utf8Gate gate;
  CHECK(gate.push("a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") == "a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(gate.flush().empty());
}

TEST_CASE("a character waits for its last byte") {
  Utf8Gate gate;
  CHECK(gate.push("x\xf0") == "x");
  CHECK(gate.push("\x9f\x98").empty());
  CHECK(gate.push("\x80y") == "\xf0\x9f\x98\x80y");
}

TEST_CASE("invalid bytes become U+FFFD, one per maximal invalid part") {
  const std::string bad = "\xef\xbf\xbd";
  CHECK(byte_by_byte("\x80") == bad);
  CHECK(byte_by_byte("\xff"
                     "a") == bad + "a");
  CHECK(byte_by_byte("\xe2\x82"
                     "a") == bad + "a");
  CHECK(byte_by_byte("\xc0\xaf") == bad + bad);            // overlong
  CHECK(byte_by_byte("\xed\xa0\x80") == bad + bad + bad);  // a surrogate
  CHECK(byte_by_byte("\xf4\x90\x80\x80") == bad + bad + bad + bad);
  CHECK(byte_by_byte("\xe2\x82") == bad);  // flushed in the middle
}

TEST_CASE("stop strings: the text before the first one completed, for any split into pieces") {
  struct Case {
    std::vector<std::string> stops;
    std::string text, expected;
    bool stopped;
  };
  for (const Case& c : {Case{{"end"}, "the end is", "the ", true}, Case{{"end"}, "the en", "the en", false},
                        Case{{"aab"}, "aaab", "a", true},           // begins within a partial match
                        Case{{"abcd", "bc"}, "xabcd", "xa", true},  // bc ends first
                        Case{{"bc", "abc"}, "xabcd", "x", true},    // both end here: the longest
                        Case{{"ababc"}, "abababc", "ab", true}, Case{{}, "text", "text", false},
                        Case{{"\n\n"}, "a\nb\n\nc", "a\nb", true},
                        Case{{"\xc3\xa9"}, "a\xc3\xa8 caf\xc3\xa9!", "a\xc3\xa8 caf", true}})
    for (std::size_t piece = 1; piece <= c.text.size(); ++piece) {
      CAPTURE(c.text);
      CAPTURE(piece);
      StopStrings stops(c.stops);
      std::string out;
      for (std::size_t at = 0; at < c.text.size(); at += piece)
        out += stops.push(std::string_view(c.text).substr(at, piece));
      CHECK(stops.stopped() == c.stopped);
      out += stops.flush();
      CHECK(out == c.expected);
      CHECK(stops.push(c.stopped ? "more" : "") == "");
    }
}

TEST_CASE("only bytes that may begin a stop string are held back") {
  StopStrings stops({"</answer>", "\n\n"});
  CHECK(stops.push("a < b") == "a < b");
  CHECK(stops.push("</ans") == "");
  CHECK(stops.push("w") == "");
  CHECK(stops.push("x\n") == "</answx");
  CHECK(stops.push("y") == "\ny");
  CHECK(stops.push("</answer>z") == "");
  CHECK(stops.stopped());
  CHECK(stops.flush() == "");
}

TEST_CASE("a stream of tokens: stop strings and characters that span tokens") {
  const std::vector<std::string> pieces{"caf", "\xc3", "\xa9 S", "TO", "Px", "\xe2\x82", "\xac", "S"};
  const auto bytes = [&](specula::Token token) { return pieces[static_cast<std::size_t>(token)]; };
  TextStream stream(bytes, {"STOP"});
  CHECK(stream.put(0) == "caf");
  CHECK(stream.put(1) == "");
  CHECK(stream.put(2) == "\xc3\xa9 ");
  CHECK(stream.put(3) == "");
  CHECK_FALSE(stream.stopped());
  CHECK(stream.put(4) == "");
  CHECK(stream.stopped());
  CHECK(stream.put(0) == "");
  CHECK(stream.flush() == "");
  TextStream open(bytes, {"STOP", "\xac!"});
  CHECK(open.put(5) == "");
  CHECK(open.put(6) == "");  // the last byte may begin the second stop string
  CHECK(open.put(7) == "\xe2\x82\xac");
  CHECK(open.flush() == "S");  // it did not continue
}
