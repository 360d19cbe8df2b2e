#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "utf8_gate.hpp"

using specula_examples::Utf8Gate;

namespace {

std::string byte_by_byte(std::string_view bytes) {
  Utf8Gate gate;
  std::string out;
  for (const char byte : bytes) out += gate.push({&byte, 1});
  return out + gate.flush();
}

}  // namespace

TEST_CASE("whole characters pass at once") {
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

TEST_CASE("bytes of no character become U+FFFD, one for each part that cannot go on") {
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
