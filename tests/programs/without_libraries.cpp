// SPDX-License-Identifier: MIT
// Programs built without Oniguruma and utf8proc: the sources are compiled here without the macros that say
// they are there.
// labels: alone
#include "../../tools/common/added_tokens.cpp"
#include "../../tools/common/normalizer.cpp"
#include "../../tools/common/text_pattern.cpp"

#include <doctest/doctest.h>

#include <string>

#include "gguf_tokenizer.hpp"
#include "pre_tokenizer.hpp"

using namespace specula_tools;
using specula::files::Json;

namespace {

template <class Make>
std::string complaint(const Make& make) {
  try {
    make();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("files that need a library are refused, and the message names its package") {
  const Json words = Json::parse(R"({"type": "ByteLevel"})"), nfc = Json::parse(R"({"type": "NFC"})"),
             added = Json::parse(R"({"content": "x", "single_word": true})"),
             spaces = Json::parse(R"({"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"})");
  CHECK(complaint([&] { PreTokenizer(JsonFields(words, "file")); }) ==
        "file: needs regular expressions, which these programs are built without: install Oniguruma (Debian: "
        "libonig-dev) and configure them again, or run the model as a GGUF file in llama.cpp (specula run "
        "--engine llama.cpp)");
  CHECK(complaint([&] { Normalizer(JsonFields(nfc, "file")); }) ==
        "file: a normalizer NFC needs utf8proc, which these programs are built without: install it (Debian: "
        "libutf8proc-dev) and configure them again, or run the model as a GGUF file in llama.cpp (specula "
        "run --engine llama.cpp)");
  CHECK(complaint([&] { read_added_token(JsonFields(added, "file"), 1); }).find("libonig-dev") !=
        std::string::npos);
  CHECK(complaint([&] {
          make_gguf_tokenizer({.model = "gpt2", .pre = "gpt-2", .tokens = {"a"}, .end = 0}, "m.gguf");
        }).starts_with("m.gguf: "));
  CHECK_FALSE(TextPattern::has_regular_expressions());
  CHECK(complaint([&] { PreTokenizer(JsonFields(spaces, "file")); }) == "nothing");
}
