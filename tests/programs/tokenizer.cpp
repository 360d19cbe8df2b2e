#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "skip.hpp"
#include "tokenizer.hpp"

using namespace specula_examples;

TEST_CASE("text comes back as it went in, streamed in whole characters") {
  const std::filesystem::path file = SPECULA_MODELS_DIR "/target/tokenizer.model";
  if (!std::filesystem::exists(file)) return specula_test::skip("no model pack");
  const Tokenizer tokenizer(file);
  for (const std::string text :
       {"Question: How many?\nAnswer:", "def f(x):\n    return  x\n\n        # tail\n",
        "  two leading, na\xc3\xafve", "\xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x99\x82\n",
        "\t\\ \"quotes\" 12345 <s> <0x0A>"}) {
    const auto tokens = tokenizer.encode(text);
    CHECK(tokens.front() == 1);
    CHECK(tokenizer.decode(tokens) == text);
    TextStream stream(tokenizer);
    std::string streamed;
    for (const specula::Token token : tokens) {
      const std::string part = stream.put(token);
      Utf8Gate whole;
      CHECK(whole.push(part) == part);
      streamed += part;
    }
    CHECK(streamed == text);
  }
  CHECK(tokenizer.bytes(tokenizer.end()).empty());
  CHECK(tokenizer.bytes(-1).empty());
}

TEST_CASE("a file that is no tokenizer is named") {
  CHECK_THROWS_WITH_AS(Tokenizer("no/such/tokenizer.model"),
                       "no/such/tokenizer.model: cannot be opened for reading", std::runtime_error);
  CHECK_THROWS_AS(Tokenizer(SPECULA_MODELS_DIR "/../prompts/default.jsonl"), std::runtime_error);
}
