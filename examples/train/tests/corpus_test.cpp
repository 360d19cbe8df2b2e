#include "corpus.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "token_store.hpp"

namespace st = specula_train;
namespace fs = std::filesystem;

namespace {

/// A folder that goes away with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / "specula_train_corpus_test";
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
};

}  // namespace

TEST_CASE("calculator annotations go, all else stays") {
  CHECK(st::strip_calculator_annotations("3*4=<<3*4=12>>12 eggs, 1+1=<<1+1=2>>2") == "3*4=12 eggs, 1+1=2");
  CHECK(st::strip_calculator_annotations("1 << 2") == "1 << 2");
  CHECK(st::strip_calculator_annotations("") == "");
}

TEST_CASE("GSM8K documents") {
  const Folder folder;
  folder.write("good.jsonl", "{\"question\": \"How many?\", \"answer\": \"<<1+1=2>>2\\n#### 2\"}\n");
  CHECK(st::read_gsm8k(folder.path / "good.jsonl") ==
        std::vector<std::string>{"Question: How many?\nAnswer: 2\n#### 2"});

  folder.write("bad.jsonl", "{\"question\": \"How many?\"}\n");
  CHECK_THROWS_WITH_AS(st::read_gsm8k(folder.path / "bad.jsonl"), doctest::Contains("bad.jsonl:1:"),
                       std::runtime_error);
  CHECK_THROWS_AS(st::read_gsm8k(folder.path / "missing.jsonl"), std::runtime_error);
}

TEST_CASE("Python sources, without tests and tables") {
  const Folder folder;
  const std::string body(200, '#');
  folder.write("b.py", "b" + body);
  folder.write("a.py", "a" + body);
  folder.write("test/x.py", "x" + body);
  folder.write("encodings/y.py", "y" + body);
  folder.write("short.py", "pass");
  folder.write("latin.py", body + "\xe9");
  CHECK(st::read_python(folder.path) == std::vector<std::string>{"a" + body, "b" + body});
}

TEST_CASE("every n-th document is held out, and a corpus survives the disk") {
  const Folder folder;
  const auto style = st::split_style("s", {"a", "b\n\"", "c", "d", "e"}, 2);
  CHECK(style.train == std::vector<std::string>{"a", "c", "e"});
  CHECK(style.heldout == std::vector<std::string>{"b\n\"", "d"});
  st::write_style(style, folder.path);
  const auto styles = st::read_corpus(folder.path);
  REQUIRE(styles.size() == 1);
  CHECK(styles[0].name == "s");
  CHECK(styles[0].train == style.train);
  CHECK(styles[0].heldout == style.heldout);
}

TEST_CASE("tokens survive the disk, and bad files are named") {
  const Folder folder;
  const st::TokenizedCorpus corpus{
      .vocab_size = 9, .styles = {{.name = "s", .train = {{1, 5, 2}, {1, 2}}, .heldout = {{1, 8, 2}}}}};
  st::write_tokens(corpus, folder.path);
  const auto read = st::read_tokens(folder.path);
  CHECK(read.vocab_size == 9);
  REQUIRE(read.styles.size() == 1);
  CHECK(read.styles[0].train == corpus.styles[0].train);
  CHECK(read.styles[0].heldout == corpus.styles[0].heldout);

  folder.write("s.train.tokens", std::string("\x09\0\0\0", 4));
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("outside the vocabulary"),
                       std::runtime_error);
  folder.write("s.train.tokens", std::string("\x01\0\0\0", 4));
  CHECK_THROWS_WITH_AS(st::read_tokens(folder.path), doctest::Contains("no end"), std::runtime_error);
}

TEST_CASE("how much of a document is given survives the disk, and is marked") {
  const Folder folder;
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

  corpus.styles[0].given.clear();  // written over: what was given once is no more
  st::write_tokens(corpus, folder.path);
  CHECK(st::read_tokens(folder.path).styles.at(0).given.empty());
}
