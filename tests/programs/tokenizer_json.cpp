// SPDX-License-Identifier: MIT
// tokenizer.json: the kinds that are common, compared with Hugging Face's library; byte-level vocabularies.
#include "tokenizer_json.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "byte_alphabet.hpp"
#include "files.hpp"
#include "skip.hpp"
#include "text_pattern.hpp"

using namespace specula_tools;
using nlohmann::json;
using specula::Token;
using Tokens = std::vector<Token>;

namespace {

const std::filesystem::path kFolder = SPECULA_MODELS_DIR "/../../tests/programs/tokenizers";

Tokenizer make(const json& file, TokenFiles files = {}) {
  if (files.stop_tokens.empty()) files.stop_tokens = {0};
  return make_json_tokenizer(file, "file", files);
}

std::string complaint(const json& file) {
  try {
    make(file);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

/// A byte-level tokenizer.json of all bytes, whose token is the byte plus one, and a few merges; without
/// regular expressions. 0 is <|end|>.
json byte_level() {
  json vocab{{"<|end|>", 0}};
  for (int byte = 0; byte < 256; ++byte)
    vocab[spell_bytes(std::string(1, static_cast<char>(byte)))] = byte + 1;
  int next = 257;
  for (const char* piece : {"ab", "abc", "abcd",
                            "\xc4\xa0"  // of " a"
                            "a"})
    vocab[piece] = next++;
  return {{"added_tokens", json::array({{{"id", 0}, {"content", "<|end|>"}, {"special", true}}})},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
          {"model",
           {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array({"a b", {"ab", "c"}, "\xc4\xa0 a"})}}}};
}

/// Tokens of bytes.
Tokens bytes(std::string_view text) {
  Tokens out;
  for (const char byte : text) out.push_back(static_cast<unsigned char>(byte) + 1);
  return out;
}

}  // namespace

TEST_CASE("the same tokens as Hugging Face's library, in twenty scripts") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  // Of tests/programs/tokenizers/compare.py, or the sample.
  const char* const named = std::getenv("SPECULA_TOKENIZERS");
  const std::filesystem::path folder = named ? named : kFolder;
  const json expected = json::parse(read_file(folder / "expected.json"));
  const auto texts = expected.at("texts").get<std::vector<std::string>>();
  REQUIRE(texts.size() > 70);
  for (const std::string kind : {"gpt2", "llama3", "qwen2", "smollm2"}) {
    CAPTURE(kind);
    const Tokenizer tokenizer = make(json::parse(read_file(folder / (kind + ".json"))));
    const auto as_text = expected.at(kind + " text").get<std::vector<Tokens>>(),
               as_chat = expected.at(kind + " chat").get<std::vector<Tokens>>();
    REQUIRE(as_text.size() == texts.size());
    REQUIRE(as_chat.size() > 30);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(texts[i]);
      const Tokens tokens = tokenizer.encode(texts[i]);
      CHECK(tokens == as_text[i]);
      const bool chat = i >= as_chat.size() || tokenizer.encode_chat(texts[i]) == as_chat[i];
      CHECK(chat);
      equal += tokens == as_text[i] && chat;
      // "qwen2" composes characters, <tool> takes spaces along, and SmolLM2's own vocabulary lacks some
      // bytes.
      if (kind != "qwen2" && !named && texts[i].find("<tool>") == std::string::npos)
        CHECK(tokenizer.decode(tokens) == texts[i]);
    }
    if (named) MESSAGE(kind << ": " << equal << " of " << texts.size() << " lines are equal");
  }
}

TEST_CASE("byte-level vocabularies encode and print bytes") {
  const Tokenizer tokenizer = make(byte_level());
  CHECK(tokenizer.vocab_size() == 261);
  CHECK(tokenizer.encode("abab abc") == Tokens{257, 257, 33, 258});
  CHECK(tokenizer.encode("b a\xc3\xa9\n") == Tokens{99, 260, 0xC4, 0xAA, 11});
  CHECK(tokenizer.bytes(260) == " a");
  CHECK(tokenizer.bytes(0xC4) == "\xc3");
  CHECK(tokenizer.bytes(0).empty());
  CHECK(tokenizer.pieces()[260] ==
        "\xc4\xa0"
        "a");
  std::string all;
  for (int byte = 1; byte < 128; ++byte) all += static_cast<char>(byte);
  CHECK(tokenizer.decode(tokenizer.encode(all)) == all);
}

TEST_CASE("the byte alphabet is one to one, and other characters spell no bytes") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(spelled_bytes(spell_bytes(all)) == all);
  CHECK(spell_bytes(" \n\xad") == "\xc4\xa0\xc4\x8a\xc5\x83");  // GPT-2's encoder.py: U+0120 U+010A U+0143
  CHECK_FALSE(spelled_bytes("a b"));
  CHECK_FALSE(spelled_bytes("\xc5\x84"));  // U+0144
  CHECK_FALSE(
      spelled_bytes("\xe2\x96\x81"
                    "a"));                     // U+2581
  CHECK_FALSE(spelled_bytes("\xe3\x81\xa1"));  // whose bytes are of the alphabet
  CHECK_FALSE(spelled_bytes("\xc4"));          // cut short
  CHECK_FALSE(spelled_bytes("\xa1"));
  CHECK_FALSE(spelled_bytes("\xc4z"));
}

TEST_CASE("what is no UTF-8 is read as U+FFFD, as Python decodes with errors=replace") {
  const Tokenizer tokenizer = make(byte_level());
  const std::string bad = "\xef\xbf\xbd";
  const auto check = [&](const std::string& text, const std::string& read) {
    CAPTURE(read);
    CHECK(tokenizer.encode(text) == bytes(read));
    CHECK(tokenizer.encode_chat(text) == bytes(read));
  };
  check("x\xffy", "x" + bad + "y");
  check("\xe2\x82", bad);  // one for the beginning of a character
  check("\xe2\x28\xa1", bad + "(" + bad);
  check("\xc0\xaf", bad + bad);            // no beginning of any
  check("\xed\xa0\x80", bad + bad + bad);  // a surrogate
  check("\xf0\x9f\x99x\x80", bad + "x" + bad);
  check("\xf4\x90\x80\x80", bad + bad + bad + bad);
  check("\xf0\x9f\x99\x82", "\xf0\x9f\x99\x82");
}

TEST_CASE("control tokens are text in a prompt, and tokens in what a chat template rendered") {
  const Tokenizer tokenizer = make(byte_level());
  CHECK(tokenizer.encode("z<|end|>") == bytes("z<|end|>"));
  CHECK(tokenizer.encode_chat("z<|end|><|end") == [] {
    Tokens out = bytes("z");
    out.push_back(0);
    const Tokens rest = bytes("<|end");
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  }());
  json file = byte_level();
  file["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}}],
       "special_tokens": {"<|end|>": {"ids": [0]}}}]})");
  CHECK(make(file).encode("z") == Tokens{0, 'z' + 1});
  CHECK(make(file).encode_chat("z") == Tokens{'z' + 1});
}

TEST_CASE("ignore_merges takes a word of the vocabulary whole") {
  json file = byte_level();
  CHECK(make(file).encode("abcd") == Tokens{258, 'd' + 1});
  file["model"]["ignore_merges"] = true;
  CHECK(make(file).encode("abcd") == Tokens{259});
  CHECK(make(file).encode("xabcd") == Tokens{'x' + 1, 258, 'd' + 1});
}

TEST_CASE("what a byte-level vocabulary lacks is nothing, or the unknown token") {
  json file = byte_level();
  file["model"]["vocab"].erase("x");
  CHECK(make(file).encode("axxb") == Tokens{257});  // as `tokenizers`: what is left is one word
  file["model"]["unk_token"] = "<|end|>";
  CHECK(make(file).encode("axxb") == Tokens{'a' + 1, 0, 0, 'b' + 1});
  file["model"]["fuse_unk"] = true;
  CHECK(make(file).encode("axxb") == Tokens{'a' + 1, 0, 'b' + 1});
  file["model"]["byte_fallback"] = true;
  CHECK(complaint(file).starts_with("file: byte_fallback of a byte-level vocabulary without some bytes"));
}

TEST_CASE("of equal merges the last counts") {
  json file = byte_level();
  file["model"]["vocab"]["bc"] = 261;
  file["model"]["merges"] = {"a b", "b c"};
  CHECK(make(file).encode("abc") == Tokens{257, 'c' + 1});
  file["model"]["merges"] = {"a b", "b c", "a b"};
  CHECK(make(file).encode("abc") == Tokens{'a' + 1, 261});
}

TEST_CASE("a long word takes no quadratic time") {
  const Tokenizer tokenizer = make(byte_level());
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "ab";
  const Tokens tokens = tokenizer.encode(text);
  CHECK(tokens.size() == 100'000);
  CHECK(std::all_of(tokens.begin(), tokens.end(), [](Token t) { return t == 257; }));
}

TEST_CASE("a text may end with a token that only the model has") {
  TokenFiles files;
  files.stop_tokens = {300};
  const Tokenizer tokenizer = make(byte_level(), files);
  CHECK(tokenizer.vocab_size() == 261);
  CHECK(tokenizer.end() == 300);
  CHECK(tokenizer.bytes(300).empty());
}

TEST_CASE("numbers far beyond the size of the file are refused, and so are parts that are not read") {
  const auto changed = [](const char* patch) {
    json file = byte_level();
    file.merge_patch(json::parse(patch));
    return complaint(file);
  };
  CHECK(changed(R"({"model": {"vocab": {"ab": 2000000000}}})") ==
        "file: key 'model': key 'vocab': key 'ab': 2000000000, expected less than 65798 for so many tokens");
  CHECK(changed(R"({"added_tokens": [{"id": 70000, "content": "x"}]})") ==
        "file: key 'added_tokens', 0: key 'id': 70000, expected less than 65798 for so many tokens");
  CHECK(changed(R"({"model": {"dropout": 0.1}})").starts_with("file: dropout is not read"));
  CHECK(changed(R"({"post_processor": {"type": "RobertaProcessing"}})")
            .starts_with("file: a post_processor RobertaProcessing is not read"));
  CHECK(changed(R"({"model": {"merges": ["a \u2581"]}})") ==
        "file: key 'model': key 'merges': token '\xe2\x96\x81' is not in the vocabulary");
  CHECK(changed(R"({"model": {"merges": ["a z"]}})") ==
        "file: key 'model': key 'merges': token 'az' is not in the vocabulary");
}
