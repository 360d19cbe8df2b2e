// SPDX-License-Identifier: MIT
// Patterns, normalizers and pre-tokenizers of tokenizer.json. Expected words are what Hugging Face's
// `tokenizers` 0.23.3 gives: pre_tokenizer.pre_tokenize_str(text).
#include "pre_tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "normalizer.hpp"
#include "skip.hpp"
#include "text_pattern.hpp"

using namespace specula_tools;
using nlohmann::json;
using specula::files::JsonFields;
using Strings = std::vector<std::string>;

namespace {

Strings words(const char* part, const std::string& text, bool first = true) {
  const json parsed = json::parse(part);
  Strings out;
  PreTokenizer(JsonFields(parsed, "file"))(text, first).for_each([&](std::string_view word) {
    out.emplace_back(word);
  });
  return out;
}

std::string normal(const char* part, const std::string& text) {
  const json parsed = json::parse(part);
  return Normalizer(JsonFields(parsed, "file"))(text);
}

template <class Make>
std::string complaint(const char* part) {
  const json parsed = json::parse(part);
  try {
    Make(JsonFields(parsed, "file"));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

Strings split(const std::string& behavior, bool invert, const std::string& text) {
  const json part{
      {"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
  return words(part.dump().c_str(), text);
}

}  // namespace

TEST_CASE("what becomes of matches") {
  const std::string text = "-a--b-";
  CHECK(split("Isolated", false, text) == Strings{"-", "a", "-", "-", "b", "-"});
  CHECK(split("Removed", false, text) == Strings{"a", "b"});
  CHECK(split("MergedWithPrevious", false, text) == Strings{"-", "a-", "-", "b-"});
  CHECK(split("MergedWithNext", false, text) == Strings{"-a", "-", "-b", "-"});
  CHECK(split("Contiguous", false, text) == Strings{"-", "a", "--", "b", "-"});
  CHECK(split("Removed", true, text) == Strings{"-", "-", "-", "-"});
  CHECK(split("Contiguous", true, text) == Strings{"-", "a", "--", "b", "-"});
  CHECK(split("MergedWithPrevious", true, text) == Strings{"-a", "-", "-b", "-"});
  CHECK(split("Isolated", false, "") == Strings{});
}

TEST_CASE("ByteLevel: a space in front, and the words of GPT-2") {
  CHECK(words(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})", "a b") ==
        Strings{" a b"});
  CHECK(words(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})", " a", false) ==
        Strings{" a"});
  CHECK(words(R"({"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed"},
          {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}]})",
              "a-b") == Strings{" a", " b"});
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  CHECK(words(R"({"type": "ByteLevel", "add_prefix_space": false})", "I'll  say:\n\n it's 1st\xc3\xa9!") ==
        Strings{"I", "'ll", " ", " say", ":", "\n\n", " it", "'s", " 1", "st\xc3\xa9", "!"});
}

TEST_CASE("Digits one by one or together, and look-ahead that ends with the word before") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  CHECK(words(R"({"type": "Digits", "individual_digits": true})", "a12\xd9\xa3 b") ==
        Strings{"a", "1", "2", "\xd9\xa3", " b"});
  CHECK(words(R"({"type": "Digits", "individual_digits": false})", "a12\xd9\xa3 b") ==
        Strings{"a", "12\xd9\xa3", " b"});
  CHECK(words(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
                  {"type": "ByteLevel", "add_prefix_space": false}]})",
              "a   1") == Strings{"a", "   ", "1"});
}

TEST_CASE("empty matches divide, and do not repeat") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  const auto cut = [](const std::string& behavior, const char* text) {
    const std::string part =
        R"({"type": "Split", "pattern": {"Regex": "x*"}, "behavior": ")" + behavior + "\"}";
    return words(part.c_str(), text);
  };
  CHECK(cut("Isolated", "ax\xc3\xa9xxb") == Strings{"a", "x", "\xc3\xa9", "xx", "b"});
  const char* const text = "abxx\xc3\xa9-d";
  CHECK(cut("Isolated", text) == Strings{"a", "b", "xx", "\xc3\xa9", "-", "d"});
  CHECK(cut("Contiguous", text) == Strings{"a", "b", "xx", "\xc3\xa9", "-", "d"});
  CHECK(cut("MergedWithPrevious", text) == Strings{"a", "bxx", "\xc3\xa9", "-", "d"});
  CHECK(cut("MergedWithNext", text) == Strings{"a", "b", "xx\xc3\xa9", "-", "d"});
}

TEST_CASE("normalizers in order") {
  CHECK(normal(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]})",
               " a b") == "__a_b");
  CHECK(normal(R"({"type": "Prepend", "prepend": "_"})", "").empty());
  CHECK(normal(R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", "ab") == "ab");
  if (TextPattern::has_regular_expressions())
    CHECK(normal(R"({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": ""})", "xaby") == "xy");
}

TEST_CASE("NFC composes, and puts marks in order") {
  if (complaint<Normalizer>(R"({"type": "NFC"})") != "nothing") return specula_test::skip("no utf8proc");
  const char* const nfc = R"({"type": "NFC"})";
  CHECK(normal(nfc, "e\xcc\x81 abc") == "\xc3\xa9 abc");
  CHECK(normal(nfc, "q\xcc\x87\xcc\xa3") == "q\xcc\xa3\xcc\x87");
  CHECK(normal(nfc, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab") == "\xed\x95\x9c");  // a syllable of Hangul
  CHECK(normal(nfc, "\xe2\x84\xa6") == "\xce\xa9");                              // the sign of the ohm
  CHECK(normal(nfc, "\xef\xac\x81") == "\xef\xac\x81");                          // ligatures stay
}

TEST_CASE("expressions that are none, are too long or backtrack without end are errors") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  CHECK_THROWS_WITH_AS((TextPattern::regular_expression)("(a", "file"),
                       "file: regular expression: end pattern with unmatched parenthesis",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS((TextPattern::regular_expression)(std::string(10'001, 'a'), "file"),
                       "file: regular expression of 10001 bytes, expected at most 10000", std::runtime_error);
  const auto slow = TextPattern::regular_expression("(?:a|aa)+(?<=x)", "file");
  CHECK_THROWS_WITH_AS(slow.for_each_match(std::string(5000, 'a'), [](std::size_t, std::size_t) {}),
                       "file: regular expression: retry-limit-in-match over", std::runtime_error);
  std::size_t longest = 0;
  TextPattern::regular_expression("\\s+(?!\\S)", "file")
      .for_each_match(std::string(300'000, ' ') + "x",
                      [&](std::size_t begin, std::size_t end) { longest = end - begin; });
  CHECK(longest == 299'999);
}

TEST_CASE("what is not read is refused by name") {
  const char* const way_out =
      " is not read; put the SentencePiece model, if there is one, beside it as tokenizer.model, or run the "
      "model as a GGUF file in llama.cpp (specula run --engine llama.cpp)";
  CHECK(complaint<PreTokenizer>(R"({"type": "Whitespace"})") ==
        std::string("file: a pre_tokenizer Whitespace") + way_out);
  CHECK(complaint<PreTokenizer>(R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Other"})") ==
        std::string("file: a behavior Other") + way_out);
  CHECK(complaint<PreTokenizer>(R"({"type": "Sequence", "pretokenizers": [
            {"type": "ByteLevel", "use_regex": false}, {"type": "Digits"}]})") ==
        std::string("file: a pre_tokenizer Digits after ByteLevel") + way_out);
  CHECK(complaint<Normalizer>(R"({"type": "NFKC"})") == std::string("file: a normalizer NFKC") + way_out);
  CHECK(complaint<Normalizer>(R"({"type": "Replace", "content": "x"})") ==
        "file: key 'pattern': missing, expected an object");
}
