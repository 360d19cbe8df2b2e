// SPDX-License-Identifier: MIT
// Vocabularies of GGUF files: the tokens of the models' own tokenizers, compared with `tokenizers` and
// SentencePiece.
#include "gguf_tokenizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files.hpp"
#include "skip.hpp"
#include "text_pattern.hpp"
#include "tokenizer_json.hpp"

using namespace specula_tools;
using nlohmann::json;
using specula::Token;
using Tokens = std::vector<Token>;
namespace fs = std::filesystem;

namespace {

const fs::path kRoot = SPECULA_MODELS_DIR "/../..";
constexpr const char* kSpace = "\xe2\x96\x81";

/// As a GGUF file has it, what a tokenizer.json of the sample holds.
GgufVocabulary from_json(const json& file, const std::string& pre) {
  GgufVocabulary out{.model = "gpt2", .pre = pre};
  const json& model = file.at("model");
  out.tokens.resize(model.at("vocab").size());
  out.types.assign(out.tokens.size(), GgufVocabulary::normal);
  for (const auto& [text, token] : model.at("vocab").items()) out.tokens[token.get<std::size_t>()] = text;
  for (const json& merge : model.at("merges"))
    out.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  for (const char* control : {"<|begin|>", "<|end|>"})
    out.types[model.at("vocab").at(control).get<std::size_t>()] = GgufVocabulary::control;
  out.begin = model.at("vocab").at("<|begin|>").get<Token>();
  out.end = model.at("vocab").at("<|end|>").get<Token>();
  return out;
}

/// Pieces of SentencePiece: <unk>, <s>, </s>, four bytes, then `pieces`, the first merges first.
GgufVocabulary from_pieces(const std::vector<std::string>& pieces) {
  GgufVocabulary out{.model = "llama",
                     .tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xA9>", "<0x7A>"},
                     .types = {2, 3, 3, 6, 6, 6, 6},
                     .begin = 1,
                     .end = 2};
  out.tokens.insert(out.tokens.end(), pieces.begin(), pieces.end());
  out.types.resize(out.tokens.size(), GgufVocabulary::normal);
  for (std::size_t i = 0; i < out.tokens.size(); ++i) out.scores.push_back(-static_cast<float>(i));
  return out;
}

std::string complaint(const GgufVocabulary& vocabulary) {
  try {
    make_gguf_tokenizer(vocabulary, "m.gguf");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("names of pre-tokenizers give the words of the models' own tokenizer.json") {
  if (!TextPattern::has_regular_expressions()) return specula_test::skip("no Oniguruma");
  const fs::path folder = kRoot / "tests" / "programs" / "tokenizers";
  const json expected = json::parse(read_file(folder / "expected.json"));
  const auto texts = expected.at("texts").get<std::vector<std::string>>();
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"smollm2", "smollm"}};
  for (const auto& names : kinds) {
    const std::string kind = names.first, pre = names.second;
    CAPTURE(kind);
    const json file = json::parse(read_file(folder / (kind + ".json")));
    const Tokenizer tokenizer = make_gguf_tokenizer(from_json(file, pre), "m.gguf");
    CHECK(tokenizer.adds_begin() == (kind == "llama3"));
    CHECK(tokenizer.ends() == Tokens{tokenizer.end()});
    const auto as_text = expected.at(kind + " text").get<std::vector<Tokens>>();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      // A GGUF file cannot say what the sample says of these two.
      if (texts[i].find("<tool>") != std::string::npos || texts[i].find("single") != std::string::npos)
        continue;
      CAPTURE(texts[i]);
      CHECK(tokenizer.encode(texts[i]) == as_text[i]);
    }
  }
}

TEST_CASE("scores: the tokens of SentencePiece, for pages of this repository") {
  const fs::path model = fs::path(SPECULA_MODELS_DIR) / "target" / "tokenizer.model";
  if (!fs::exists(model)) return specula_test::skip("no model pack");
  const Tokenizer sentencepiece(model);
  GgufVocabulary vocabulary{.model = "llama", .tokens = sentencepiece.pieces(), .begin = 1, .end = 2};
  vocabulary.adds_space = false;
  vocabulary.adds_begin = sentencepiece.adds_begin();
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& piece = vocabulary.tokens[i];
    const bool byte = piece.size() == 6 && piece.starts_with("<0x");
    // Symbols of the user's, runs of spaces, stand before the bytes and have the score 0.
    vocabulary.scores.push_back(i > 10 ? -static_cast<float>(i) : 0.0f);
    vocabulary.types.push_back(i == 0 ? 2 : i < 3 ? 3 : byte ? 6 : 1);
  }
  const Tokenizer tokenizer = make_gguf_tokenizer(vocabulary, "m.gguf");
  CHECK(tokenizer.vocab_size() == sentencepiece.vocab_size());
  for (Token token = 0; token < sentencepiece.vocab_size(); ++token)
    CHECK(tokenizer.bytes(token) == sentencepiece.bytes(token));
  const std::string page = read_file(kRoot / "docs" / "methods.md").substr(0, 20'000);
  for (std::size_t at = 0; at + 400 < page.size(); at += 400) {
    const std::string text = page.substr(at, 400) + "\t\xe6\x97\xa5\xf0\x9f\x99\x82  aaaaaaa </s>";
    CAPTURE(text);
    CHECK(tokenizer.encode(text) == sentencepiece.encode(text));
  }
  CHECK(tokenizer.encode_chat("a</s>") == sentencepiece.encode_chat("a</s>"));
  CHECK(tokenizer.encode_chat("a</s>").back() == 2);
}

// The expected tokens are those of libllama, of the source that scripts/llama_cpp pins.
TEST_CASE("scores: the merge with the best result first, the leftmost of equal ones") {
  const std::string s = kSpace;
  GgufVocabulary vocabulary = from_pieces({"aa", "aaa", "ab", "bc", s + "a", "a", "b", "c", s});  // 7 to 15
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("aaaaa") == Tokens{1, 15, 7, 8});
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("abc a") == Tokens{1, 15, 9, 14, 11});
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("z\xc3\xa9\n") == Tokens{1, 15, 6, 4, 5, 3});
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("") == Tokens{1});
  std::fill(vocabulary.scores.begin(), vocabulary.scores.end(), -1000.0f);
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("abcabc") == Tokens{1, 11, 10, 9, 14});
  vocabulary.adds_space = false;
  vocabulary.adds_begin = false;
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("a a") == Tokens{12, 11});
  vocabulary.tokens[14] = "<t>";
  vocabulary.types[14] = GgufVocabulary::user_defined;
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("a<t>a") == Tokens{12, 14, 12});
  // libllama throws here; as SentencePiece:
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").encode("a</s>") == Tokens{12, 0});
  CHECK(make_gguf_tokenizer(vocabulary, "m.gguf").bytes(14) == "<t>");
}

TEST_CASE("what ends a text: the keys, and tokens that libllama knows by their texts, whatever their types") {
  const auto ends = [](auto change) {
    GgufVocabulary vocabulary = from_pieces({"a", "<|im_end|>", "b", "<turn>"});  // 7 to 10
    change(vocabulary);
    return make_gguf_tokenizer(vocabulary, "m.gguf").ends();
  };
  CHECK(ends([](GgufVocabulary&) {}) == Tokens{2, 8});
  CHECK(ends([](GgufVocabulary& v) { v.tokens[8] = "c"; }) == Tokens{2});
  CHECK(ends([](GgufVocabulary& v) { v.types[8] = GgufVocabulary::control; }) == Tokens{2, 8});
  CHECK(ends([](GgufVocabulary& v) { v.types[8] = GgufVocabulary::user_defined; }) == Tokens{2, 8});
  CHECK(ends([](GgufVocabulary& v) { v.other_ends = {9, 10}; }) == Tokens{2, 8, 9, 10});
  CHECK(ends([](GgufVocabulary& v) { v.end = 7; }) == Tokens{2, 7, 8});
  GgufVocabulary none = from_pieces({"a"});
  none.end.reset();
  none.tokens[2] = "<end>";
  CHECK(make_gguf_tokenizer(none, "m.gguf").ends() ==
        Tokens{2});  // a control token where SentencePiece has its end
  none.types[2] = GgufVocabulary::normal;
  CHECK(complaint(none) ==
        "m.gguf: neither it nor a file beside it names a token that ends a text: name it as eos_token in "
        "tokenizer_config.json, or in a GGUF file as tokenizer.ggml.eos_token_id");
  CHECK(make_gguf_tokenizer(from_pieces({"a", ""}), "m.gguf").pieces()[8] == "[EMPTY_8]");
}

TEST_CASE("the tokenizer.json of a vocabulary is the same tokenizer") {
  const GgufVocabulary vocabulary = from_pieces({"aa", "ab", "abb", "a", "b", kSpace});
  TokenFiles files;
  files.stop_tokens = {2};
  const json written = json::parse(tokenizer_json(vocabulary, "m.gguf").dump());
  const Tokenizer read = make_json_tokenizer(written, "tokenizer.json", files),
                  made = make_gguf_tokenizer(vocabulary, "m.gguf");
  for (const char* text : {"abba a", "", "  ab\n"}) CHECK(read.encode(text) == made.encode(text));
  CHECK(read.pieces() == made.pieces());
  CHECK(read.adds_begin());
}

TEST_CASE("errors name file, key and the way out") {
  const auto changed = [](auto change) {
    GgufVocabulary vocabulary = from_pieces({"a", "b"});
    change(vocabulary);
    return complaint(vocabulary);
  };
  CHECK(changed([](GgufVocabulary&) {}) == "nothing");
  CHECK(changed([](GgufVocabulary& v) { v.model = "bert"; }) ==
        "m.gguf: key 'tokenizer.ggml.model': 'bert' is not read, expected llama or gpt2; specula run "
        "--engine llama.cpp runs such models");
  const std::string pre = changed([](GgufVocabulary& v) { v.model = "gpt2", v.pre = "viking"; });
  CHECK(pre.starts_with("m.gguf: key 'tokenizer.ggml.pre': 'viking' is not read, expected one of gpt-2, "));
  CHECK(pre.ends_with("; specula run --engine llama.cpp runs such models"));
  CHECK(changed([](GgufVocabulary& v) { v.model = "gpt2", v.pre = "gpt-2", v.merges = {"ab"}; }) ==
        "m.gguf: key 'tokenizer.ggml.merges': 'ab' has no space");
  CHECK(changed([](GgufVocabulary& v) { v.scores.pop_back(); }) ==
        "m.gguf: key 'tokenizer.ggml.scores': 8 entries for 9 tokens");
  CHECK(changed([](GgufVocabulary& v) { v.types.push_back(1); }) ==
        "m.gguf: key 'tokenizer.ggml.token_type': 10 entries for 9 tokens");
  CHECK(changed([](GgufVocabulary& v) { v.tokens[8] = "a"; }) ==
        "m.gguf: key 'tokenizer.ggml.tokens': 'a' is both 7 and 8");
  CHECK(changed([](GgufVocabulary& v) { v.tokens[8] = std::string(2000, 'a'); }) ==
        "m.gguf: key 'tokenizer.ggml.tokens': a token of 2000 bytes, expected at most 1024");
  CHECK(changed([](GgufVocabulary& v) { v.begin = 9; }) ==
        "m.gguf: key 'tokenizer.ggml.bos_token_id': 9 is none of 9 tokens");
  CHECK(changed([](GgufVocabulary& v) { v.other_ends = {-1}; }).find("-1 is none of 9 tokens") !=
        std::string::npos);
  CHECK(
      changed([](GgufVocabulary& v) { v.adds_end = true; }) ==
      "m.gguf: key 'tokenizer.ggml.add_eos_token': true is not read, it would end every prompt; specula run "
      "--engine llama.cpp runs such models");
  CHECK(changed([](GgufVocabulary& v) { v.tokens.clear(); }) ==
        "m.gguf: key 'tokenizer.ggml.tokens': 0 tokens, expected 1 to 16777216");
}
