// SPDX-License-Identifier: MIT
// The file of bigram counts.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <specula/draft/max_gram.hpp>

#include "bigram_file.hpp"
#include "skip.hpp"

using namespace specula_tools;
using specula::BigramTable;
using specula::Token;

namespace {

std::vector<Token> entries(const BigramTable& table) { return {table.next().begin(), table.next().end()}; }

}  // namespace

TEST_CASE("a saved table is loaded unchanged") {
  const auto folder = std::filesystem::temp_directory_path() / "specula_bigram_file_test";
  const auto file = folder / "inner" / "bigram.json";
  std::filesystem::remove_all(folder);
  save_bigram({BigramTable({2, specula::kNoToken, 0})}, file);
  CHECK(entries(load_bigram(file).table) == std::vector<Token>{2, -1, 0});
  CHECK(load_bigram(file).vocabulary.empty());
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  CHECK(line == "{\"vocab_size\":3,\"next\":[2,-1,0]}");
  save_bigram({BigramTable({2, specula::kNoToken, 0}), "0123456789abcdef"}, file);
  CHECK(load_bigram(file).vocabulary == "0123456789abcdef");
  std::filesystem::remove_all(folder);
  CHECK_THROWS_WITH_AS(load_bigram(file), (file.string() + ": cannot be opened for reading").c_str(),
                       std::runtime_error);
}

TEST_CASE("errors name the fault of a file") {
  const auto error = [](const char* text) -> std::string {
    try {
      parse_bigram(text, "b.json");
    } catch (const std::runtime_error& thrown) {
      return thrown.what();
    }
    return "nothing";
  };
  CHECK(error(R"({"next": [0]})") == "b.json: key 'vocab_size': missing, expected an integer");
  CHECK(error("[1]") == "b.json: expected a JSON object, found [1]");
  CHECK(error(R"({"vocab_size": 2, "next": 7})") ==
        "b.json: key 'next': expected an array of tokens, found 7");
  CHECK(error(R"({"vocab_size": "2", "next": [0, 0]})") ==
        "b.json: key 'vocab_size': expected an integer from 0 to 2147483647, found \"2\"");
  CHECK(error(R"({"vocab_size": 3, "next": [0, 0]})") == "b.json: vocab_size is 3, but next has 2 entries");
  CHECK(error(R"({"vocab_size": 2, "next": [0, 0.5]})") ==
        "b.json: key 'next': expected tokens or -1, found 0.5");
  CHECK(error(R"({"vocab_size": 2, "next": [0, 4294967296]})") ==
        "b.json: key 'next': expected tokens or -1, found 4294967296");
  CHECK(error(R"({"vocab_size": 2, "next": [0, 2]})") ==
        "b.json: BigramTable: after token 1 comes 2, the vocabulary has 2 tokens");
  CHECK(error(R"({"vocab_size": 0, "next": []})") == "b.json: BigramTable: the vocabulary is empty");
  CHECK(error(R"({"vocab_size": 2, "next": [0,)").starts_with("b.json: "));
}

TEST_CASE("the model pack's table") {
  const std::filesystem::path file = SPECULA_MODELS_DIR "/bigram/bigram.json";
  if (!std::filesystem::exists(file)) return specula_test::skip("no bigram table in the model pack");
  const BigramTable table = load_bigram(file).table;
  CHECK(table.vocab_size() == 2048);
  CHECK(std::count(table.next().begin(), table.next().end(), specula::kNoToken) < 1024);
  specula::MaxGram drafter(table);
  const Token root = 5;
  const specula::NodeId none = specula::kNoParent;
  drafter.sync({}, {});
  CHECK(drafter.extend({&root, 1}, {&none, 1}).tokens[0] == table(root));
}
