// SPDX-License-Identifier: MIT
// Text corpora: documents, styles, held-out parts, token files.
#include "corpus.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "folder.hpp"
#include "tokens.hpp"

namespace st = specula_train;
namespace fs = std::filesystem;
using specula_train_test::Folder;

TEST_CASE("calculator annotations are removed, all else is kept") {
  CHECK(st::strip_calculator_annotations("3*4=<<3*4=12>>12 eggs, 1+1=<<1+1=2>>2") == "3*4=12 eggs, 1+1=2");
  CHECK(st::strip_calculator_annotations("1 << 2") == "1 << 2");
  CHECK(st::strip_calculator_annotations("") == "");
}

TEST_CASE("GSM8K documents") {
  const Folder folder("specula_train_corpus_test");
  folder.write("good.jsonl", "{\"question\": \"How many?\", \"answer\": \"<<1+1=2>>2\\n#### 2\"}\n");
  CHECK(st::read_gsm8k(folder.path / "good.jsonl") ==
        std::vector<std::string>{"Question: How many?\nAnswer: 2\n#### 2"});

  folder.write("bad.jsonl", "{\"question\": \"How many?\"}\n");
  CHECK_THROWS_WITH_AS(st::read_gsm8k(folder.path / "bad.jsonl"), doctest::Contains("bad.jsonl:1:"),
                       std::runtime_error);
  CHECK_THROWS_AS(st::read_gsm8k(folder.path / "missing.jsonl"), std::runtime_error);
}

TEST_CASE("Python sources, without tests and tables") {
  const Folder folder("specula_train_corpus_test");
  const std::string body(200, '#');
  folder.write("b.py", "b" + body);
  folder.write("a.py", "a" + body);
  folder.write("test/x.py", "x" + body);
  folder.write("encodings/y.py", "y" + body);
  folder.write("short.py", "pass");
  folder.write("latin.py", body + "\xe9");
  CHECK(st::read_python(folder.path) == std::vector<std::string>{"a" + body, "b" + body});
}

TEST_CASE("every n-th document is held out, and a saved corpus is loaded unchanged") {
  const Folder folder("specula_train_corpus_test");
  const auto style = st::split_style("s", {"a", "b\n\"", "c", "d", "e"}, 2);
  CHECK(style.train == std::vector<std::string>{"a", "c", "e"});
  CHECK(style.heldout == std::vector<std::string>{"b\n\"", "d"});
  st::write_style(style, folder.path);
  const auto styles = st::read_corpus(folder.path);
  REQUIRE(styles.size() == 1);
  CHECK(styles[0].name == "s");
  CHECK(styles[0].train == style.train);
  CHECK(styles[0].heldout == style.heldout);
  CHECK(styles[0].info.heldout_every == 2);

  auto other = st::split_style("t", {"x", "y", "z"}, 50);  // too few for every 50th: the last
  CHECK(other.heldout == std::vector<std::string>{"z"});
  CHECK(other.info.heldout_every == 3);
  other.info.description = "a \"text\"";
  other.info.licence = "MIT";
  st::write_style(other, folder.path);
  const auto both = st::read_corpus(folder.path);
  REQUIRE(both.size() == 2);
  CHECK(both[0].info.licence == "");
  CHECK(both[1].info.description == "a \"text\"");
  CHECK(both[1].info.licence == "MIT");
  CHECK_THROWS_WITH_AS(st::split_style("u", {"x"}), doctest::Contains("style u: 1 documents"),
                       std::invalid_argument);
  CHECK_THROWS_AS(st::split_style("u", {"x", "y"}, 1), std::invalid_argument);
  folder.write("styles.json", "{\"styles\": [{}]}");
  CHECK_THROWS_WITH_AS(st::read_corpus(folder.path), doctest::Contains("styles.json"), std::runtime_error);
}

TEST_CASE("any folder of text") {
  const Folder folder("specula_train_corpus_test");
  folder.write("b.txt", "b");
  folder.write("a/c.md", "c");
  folder.write("d.csv", "d");
  folder.write("blank.txt", " \n\t\n");
  folder.write("latin.txt", "\xe9");
  folder.write(".git/e.txt", "e");
  folder.write("a/.f.txt", "f");
  CHECK(st::read_text(folder.path, {}) == std::vector<std::string>{"c", "b"});
  CHECK(st::read_text(folder.path, {.endings = {".csv", "b.txt"}}) == std::vector<std::string>{"b", "d"});
  CHECK_THROWS_WITH_AS(st::read_text(folder.path, {.endings = {".tsv"}}),
                       doctest::Contains("holds no text in files that end in .tsv"), std::runtime_error);
  CHECK_THROWS_WITH_AS(st::read_text(folder.path / "nowhere", {}), doctest::Contains("nowhere: no such"),
                       std::invalid_argument);
}

TEST_CASE("JSON Lines under any key") {
  const Folder folder("specula_train_corpus_test");
  folder.write("x.jsonl", "{\"text\": \"a\", \"body\": \"b\"}\n\n{\"text\": \"c\", \"body\": \" \"}\n");
  CHECK(st::read_text(folder.path / "x.jsonl", {}) == std::vector<std::string>{"a", "c"});
  CHECK(st::read_text(folder.path / "x.jsonl", {.key = "body"}) == std::vector<std::string>{"b"});
  CHECK_THROWS_WITH_AS(st::read_text(folder.path / "x.jsonl", {.key = "story"}),
                       doctest::Contains("x.jsonl:1:"), std::runtime_error);
}

TEST_CASE("a file of many documents, or a long one") {
  const Folder folder("specula_train_corpus_test");
  folder.write("marked.txt", "one\ntwo\n<|endoftext|>\nthree\n<|endoftext|>four <|endoftext|> on");
  CHECK(st::read_text(folder.path / "marked.txt", {}) ==
        std::vector<std::string>{"one\ntwo\n", "three\n", "four <|endoftext|> on"});

  std::string text;
  for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i) + "\n";
  text += std::string(20000, 'x');  // one long line is not cut
  folder.write("long.txt", text);
  const auto pieces = st::read_text(folder.path / "long.txt", {});
  REQUIRE(pieces.size() > 3);
  std::string all;
  for (const auto& piece : pieces) {
    CHECK((piece.starts_with("line ") || piece.starts_with("x")));
    all += piece;
  }
  CHECK(all == text);
  for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
    CHECK(pieces[i].size() >= 8000);
    CHECK(pieces[i].back() == '\n');
    CHECK(pieces[i].size() < 8100);
  }
}

TEST_CASE("names and values") {
  CHECK(st::parse_assignment("--style", "a-1=/x=y") == std::pair<std::string, std::string>{"a-1", "/x=y"});
  for (const auto* bad : {"", "a", "=b", "a=", "a/b=c", "a b=c"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH_AS(st::parse_assignment("--style", bad), doctest::Contains("--style '"),
                         std::invalid_argument);
  }
}

TEST_CASE("saved tokens are loaded unchanged, and errors name bad files") {
  const Folder folder("specula_train_corpus_test");
  const st::TokenizedCorpus corpus{
      .vocab_size = 9,
      .styles = {{.name = "s",
                  .train = {{1, 5, 2}, {1, 2}},
                  .heldout = {{1, 8, 2}},
                  .info = {.description = "d", .licence = "l", .heldout_every = 3}}}};
  st::write_tokens(corpus, folder.path);
  const auto read = st::read_tokens(folder.path);
  CHECK(read.vocab_size == 9);
  CHECK(read.begin == 1);
  CHECK(read.end == 2);
  CHECK(read.styles.at(0).info.description == "d");
  CHECK(read.styles.at(0).info.licence == "l");
  CHECK(read.styles.at(0).info.heldout_every == 3);
  REQUIRE(read.styles.size() == 1);
  CHECK(read.styles[0].train == corpus.styles[0].train);
  CHECK(read.styles[0].heldout == corpus.styles[0].heldout);

  folder.write("s.train.tokens", std::string("\x09\0\0\0", 4));
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("outside the vocabulary"),
                       std::runtime_error);
  folder.write("s.train.tokens", std::string("\x01\0\0\0", 4));
  std::filesystem::remove(folder.path / "s.train.documents");
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("no end"), std::runtime_error);
}

TEST_CASE("documents by lengths may hold ends, or have none") {
  const Folder folder("specula_train_corpus_test");
  const st::TokenizedCorpus corpus{
      .vocab_size = 9,
      .styles = {{.name = "chat", .train = {{1, 5, 2, 6, 2}, {7, 8}}, .heldout = {{2, 2}}, .given = {3, 1}}}};
  st::write_tokens(corpus, folder.path);
  const auto read = st::read_tokens(folder.path).styles.at(0);
  CHECK(read.train == corpus.styles[0].train);
  CHECK(read.heldout == corpus.styles[0].heldout);
  CHECK(read.given == corpus.styles[0].given);
  const auto refuses = [&](const std::string& lengths, const char* why) {
    folder.write("chat.train.documents", lengths);
    CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains(why), std::runtime_error);
  };
  refuses(std::string("\x08\0\0\0", 4), "a document of 8 tokens, of 7");
  refuses(std::string("\0\0\0\0", 4), "a document of 0 tokens");
  refuses(std::string("\x05\0\0\0", 4), "leaves out the last 2 tokens");
}

TEST_CASE("documents end with the tokenizer's own token") {
  const Folder folder("specula_train_corpus_test");
  folder.write("tokens.json", R"({"vocab_size": 9, "begin": 7, "end": 8, "styles": ["s"]})");
  folder.write("s.train.tokens", std::string("\x07\0\0\0\x02\0\0\0\x08\0\0\0", 12));
  folder.write("s.heldout.tokens", "");
  auto read = st::read_tokens(folder.path);
  CHECK(read.begin == 7);
  CHECK(read.end == 8);
  CHECK(read.styles.at(0).train == std::vector<st::Document>{{7, 2, 8}});
  CHECK(read.styles.at(0).info.description == "");
  st::write_tokens(read, folder.path);
  CHECK(st::read_tokens(folder.path).end == 8);
  folder.write("tokens.json", R"({"vocab_size": 9, "end": 9, "styles": []})");
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("begin or end is 9"),
                       std::runtime_error);
  folder.write("tokens.json", R"({"vocab_size": 9, "styles": ["s"]})");  // without, they are 1 and 2
  std::filesystem::remove(folder.path / "s.train.documents");
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("no end"), std::runtime_error);
}

TEST_CASE("the number of given tokens per document is saved, loaded and marked") {
  const Folder folder("specula_train_corpus_test");
  st::TokenizedCorpus corpus{
      .vocab_size = 9,
      .styles = {{.name = "s", .train = {{1, 5, 6, 2}, {1, 7, 2}}, .heldout = {}, .given = {2, 0}}}};
  st::write_tokens(corpus, folder.path);
  auto style = st::read_tokens(folder.path).styles.at(0);
  CHECK(style.given == corpus.styles[0].given);
  CHECK(style.train == corpus.styles[0].train);
  st::mark_given(style);
  CHECK(style.train == std::vector<st::Document>{{-2, -6, 6, 2}, {1, 7, 2}});
  CHECK(st::mark_given(st::mark_given(5)) == 5);

  folder.write("s.train.given", std::string("\x05\0\0\0\0\0\0\0", 8));
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("5 given tokens of 4"),
                       std::runtime_error);
  folder.write("s.train.given", std::string("\x01\0\0\0", 4));
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("1 lengths for 2 documents"),
                       std::runtime_error);

  corpus.styles[0].given.clear();  // overwritten: no given tokens
  st::write_tokens(corpus, folder.path);
  CHECK(st::read_tokens(folder.path).styles.at(0).given.empty());
}
