// SPDX-License-Identifier: MIT
// Tokenizers: one trained by the trainer, one of another model (tokenizer.json); both encode a corpus.
#include "train_tokenizer.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>

#include "folder.hpp"

namespace st = specula_train;
namespace fs = std::filesystem;
using specula_train_test::Folder;

namespace {

std::vector<st::Style> styles() {
  std::vector<std::string> documents;
  for (int i = 0; i < 400; ++i) {
    documents.push_back("Line " + std::to_string(i * 7919) +
                        " of a text:\n    indented, \xc3\xa4\xe4\xb8\xad\n" +
                        std::string(1, static_cast<char>('a' + i % 26)) + " ends\n");
  }
  auto style = st::split_style("s", documents, 10);
  style.info.licence = "none";
  return {style};
}

/// Byte-pair encoding as Llama 2's, of a few pieces.
constexpr const char* kJson = R"({"normalizer": {"type": "Sequence", "normalizers": [
  {"type": "Prepend", "prepend": "\u2581"},
  {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
 "pre_tokenizer": null,
 "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true,
  "vocab": {"<unk>": 0, "<a>": 1, "<b>": 2, "\u2581": 3, "h": 4, "i": 5, "hi": 6, "\u2581hi": 7, "\n": 8},
  "merges": ["h i", "\u2581 hi"]},
 "added_tokens": [
  {"id": 0, "content": "<unk>", "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false},
  {"id": 1, "content": "<a>", "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false},
  {"id": 2, "content": "<b>", "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false}]})";

}  // namespace

TEST_CASE("a trained tokenizer reproduces every text") {
  const Folder folder("specula_train_tokenizer_test");
  const auto corpus = styles();
  const auto file = folder.path / "tokenizer.model";
  st::train_tokenizer(corpus, {.vocab_size = 320, .model_type = "bpe"}, file);
  const st::Tokenizer tokenizer(file);
  CHECK(tokenizer.vocab_size() == 320);
  for (const std::string text : {"Line 7 of a text:\n        twice\n", "\t\xc3\xbc \n\n  \xf0\x9f\x98\x80"}) {
    CAPTURE(text);
    CHECK(st::reproduces(tokenizer, text));
  }
  const auto tokens = st::encode_corpus(corpus, tokenizer);
  CHECK(tokens.begin == st::kBegin);
  CHECK(tokens.end == st::kEnd);
  REQUIRE(tokens.styles.size() == 1);
  CHECK(tokens.styles[0].info.licence == "none");
  CHECK(tokens.styles[0].info.heldout_every == 10);
  REQUIRE(tokens.styles[0].train.size() == 360);
  const auto& document = tokens.styles[0].train[0];
  CHECK(document.front() == st::kBegin);
  CHECK(document.back() == st::kEnd);
  CHECK(tokenizer.decode(document) == corpus[0].train[0]);
}

TEST_CASE("encoding with the tokenizer of another model") {
  const Folder folder("specula_train_tokenizer_test");
  folder.write("from/tokenizer.json", kJson);
  folder.write("from/tokenizer_config.json", R"({"bos_token": "<a>", "eos_token": "<b>", "add_bos_token": true})");
  st::copy_tokenizer(folder.path / "from", folder.path / "to");
  const st::Tokenizer tokenizer(folder.path / "to");
  st::Style style{.name = "s", .train = {"hi hi\nh"}, .heldout = {"i"}};
  const auto tokens = st::encode_corpus({style}, tokenizer);
  CHECK(tokens.vocab_size == 9);
  CHECK(tokens.begin == 1);
  CHECK(tokens.end == 2);
  CHECK(tokens.styles[0].train[0] == st::Document{1, 7, 7, 8, 4, 2});
  CHECK(st::reproduces(tokenizer, "hi hi\nh"));           // except for the space that it adds in front
  CHECK_FALSE(st::reproduces(tokenizer, "hi \xc3\xa4"));  // it has no piece for this

  st::copy_tokenizer(folder.path / "from" / "tokenizer_config.json", folder.path / "to");  // any other file
  CHECK(fs::exists(folder.path / "to" / "tokenizer.model"));
  CHECK_THROWS_WITH_AS(st::copy_tokenizer(folder.path / "nowhere", folder.path / "to"),
                       doctest::Contains("nowhere: no such file"), std::runtime_error);
}
