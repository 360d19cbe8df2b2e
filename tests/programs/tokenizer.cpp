// SPDX-License-Identifier: MIT
// Tokenizers: SentencePiece, and byte-pair encoding of tokenizer.json.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "files.hpp"
#include "skip.hpp"
#include "text_pattern.hpp"
#include "text_stream.hpp"
#include "tokenizer.hpp"
#include "vocabulary.hpp"

using namespace specula_tools;
using nlohmann::json;
using specula::Token;
namespace fs = std::filesystem;

namespace {

constexpr const char* kSpace = "\xe2\x96\x81";

/// A folder with a tokenizer.json of a few pieces.
class JsonFolder {
 public:
  JsonFolder() : path(fs::temp_directory_path() / "specula_tokenizer_json_test") {
    fs::remove_all(path);
    fs::create_directories(path);
    const std::string s = kSpace;
    json vocab, added;
    int id = 0;
    for (const std::string& piece :
         std::vector<std::string>{"<unk>", "<s>", "</s>", s, "a", "b", "c", "<0xC3>", "<0xA9>", "ab", "bc",
                                  "abc", s + "a", s + s, "ca", s + "ab"})
      vocab[piece] = id++;
    for (const char* content : {"<unk>", "<s>", "</s>"})
      added.push_back({{"id", vocab[content]}, {"content", content}, {"special", true}});
    file = {{"added_tokens", added},
            {"normalizer",
             {{"type", "Sequence"},
              {"normalizers",
               json::array({{{"type", "Prepend"}, {"prepend", s}},
                            {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", s}}})}}},
            {"pre_tokenizer", nullptr},
            {"post_processor",
             {{"type", "TemplateProcessing"},
              {"single", json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                      {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
              {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
            {"model",
             {{"type", "BPE"},
              {"unk_token", "<unk>"},
              {"fuse_unk", true},
              {"byte_fallback", true},
              {"ignore_merges", false},
              {"vocab", vocab},
              {"merges", json::array({"b c", "a b", "a bc", "c a", s + " " + s, s + " a", s + " ab"})}}}};
  }
  ~JsonFolder() { fs::remove_all(path); }

  Tokenizer read() const {
    write_file(path / "tokenizer.json", file.dump());
    return Tokenizer(path);
  }
  std::string complaint() const {
    try {
      read();
    } catch (const std::runtime_error& error) {
      const std::string text = error.what(), prefix = (path / "tokenizer.json").string() + ": ";
      return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    }
    return "nothing";
  }
  void metaspace(const char* scheme, bool split) {
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", kSpace}, {"prepend_scheme", scheme}, {"split", split}};
  }

  fs::path path;
  json file;
};

using Ids = std::vector<std::vector<Token>>;

/// Tokens of fixed texts, without <s>.
Ids encoded(const Tokenizer& tokenizer) {
  Ids all;
  for (const char* text : {"abc ab",
                           "  a\xc3\xa9"
                           "b",
                           "\xe6\x97\xa5\xe6\x9c\xac"
                           "ab  c",
                           "abcabcab", "", " abca"}) {
    auto ids = tokenizer.encode(text);
    CHECK(ids.front() == 1);
    all.emplace_back(ids.begin() + 1, ids.end());
  }
  return all;
}

}  // namespace

TEST_CASE("encoding and decoding returns the text, streamed in whole characters") {
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
    TextStream stream([&](specula::Token token) { return tokenizer.bytes(token); });
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

TEST_CASE("an error names a file that is not a tokenizer") {
  CHECK_THROWS_WITH_AS(Tokenizer("no/such/tokenizer.model"),
                       "no/such/tokenizer.model: cannot be opened for reading", std::runtime_error);
  CHECK_THROWS_AS(Tokenizer(SPECULA_MODELS_DIR "/../prompts/default.jsonl"), std::runtime_error);
}

TEST_CASE("a folder or a file; errors name what is missing") {
  const fs::path file = SPECULA_MODELS_DIR "/target/tokenizer.model";
  if (!fs::exists(file)) return specula_test::skip("no model pack");
  CHECK(Tokenizer(file.parent_path()).encode("def f") == Tokenizer(file).encode("def f"));
  const JsonFolder folder;
  CHECK_THROWS_WITH_AS(
      Tokenizer(folder.path),
      (folder.path.string() + ": has neither tokenizer.model nor tokenizer.json; put the one that the "
                              "model was published with into it")
          .c_str(),
      std::runtime_error);
}

// The expected tokens are what Hugging Face's `tokenizers` 0.23.3 gives for the same files and texts.
TEST_CASE("tokenizer.json: byte-pair encoding, pairs by their rank") {
  JsonFolder folder;
  const Tokenizer tokenizer = folder.read();
  CHECK(encoded(tokenizer) ==
        Ids{{3, 11, 15}, {13, 12, 7, 8, 5}, {3, 0, 9, 13, 6}, {3, 11, 11, 9}, {}, {13, 11, 4}});
  CHECK(tokenizer.vocab_size() == 16);
  CHECK(tokenizer.end() == 2);
  const auto ids = tokenizer.encode("a\xc3\xa9  b");
  CHECK(tokenizer.decode(ids) == " a\xc3\xa9  b");
  CHECK(tokenizer.bytes(0) == "\xef\xbf\xbd");
  CHECK(tokenizer.bytes(1).empty());
  CHECK(tokenizer.bytes(7) == "\xc3");
  CHECK(tokenizer.bytes(16).empty());

  folder.file["model"]["fuse_unk"] = folder.file["model"]["byte_fallback"] = false;
  json pairs = json::array();
  for (const std::string merge : folder.file["model"]["merges"])
    pairs.push_back({merge.substr(0, merge.find(' ')), merge.substr(merge.find(' ') + 1)});
  folder.file["model"]["merges"] = pairs;
  CHECK(encoded(folder.read()) ==
        Ids{{3, 11, 15}, {13, 12, 0, 5}, {3, 0, 0, 9, 13, 6}, {3, 11, 11, 9}, {}, {13, 11, 4}});
}

TEST_CASE("tokenizer.json: spaces by Metaspace") {
  JsonFolder folder;
  folder.file["model"]["fuse_unk"] = false;
  folder.metaspace("first", false);
  CHECK(encoded(folder.read()) ==
        Ids{{3, 11, 15}, {13, 4, 7, 8, 5}, {3, 0, 0, 9, 13, 6}, {3, 11, 11, 9}, {}, {3, 11, 4}});
  folder.metaspace("always", true);
  CHECK(encoded(folder.read()) ==
        Ids{{3, 11, 15}, {3, 12, 7, 8, 5}, {3, 0, 0, 9, 3, 3, 6}, {3, 11, 11, 9}, {}, {3, 11, 4}});
  folder.metaspace("never", false);
  CHECK(encoded(folder.read()) ==
        Ids{{11, 15}, {13, 4, 7, 8, 5}, {0, 0, 9, 13, 6}, {11, 11, 9}, {}, {3, 11, 4}});
}

// The expected tokens are those of `tokenizers` 0.23.3 for the same files and texts, but for special ones in
// the text.
TEST_CASE("tokenizer.json: added tokens are found in the text, unless they are special") {
  const auto added = [](int id, const char* content, const json& more) {
    json token{{"id", id}, {"content", content}, {"special", false}, {"normalized", false}};
    token.update(more);
    return token;
  };
  const auto tokens = [&](const json& list, auto change) {
    JsonFolder folder;
    for (const json& token : list) folder.file["added_tokens"].push_back(token);
    change(folder);
    const Tokenizer tokenizer = folder.read();
    CHECK(tokenizer.bytes(16) == "<t>");
    Ids all;
    for (const char* text : {"a<t>a", "a <t> a", "<t><t>abc", " <t>", "ab<t>>c", "a <tt> b"}) {
      const auto ids = tokenizer.encode(text);
      CHECK(ids.front() == 1);
      all.emplace_back(ids.begin() + 1, ids.end());
    }
    return all;
  };
  const auto unchanged = [](JsonFolder&) {};
  const json plain = json::object(), normalized{{"normalized", true}};
  CHECK(tokens({added(16, "<t>", plain), added(17, "<tt>", plain), added(18, "<t>>", plain)}, unchanged) ==
        Ids{{12, 16, 12}, {12, 3, 16, 13, 4}, {16, 16, 3, 11}, {13, 16}, {15, 18, 3, 6}, {12, 3, 17, 13, 5}});
  CHECK(tokens({added(16, "<t>", normalized), added(17, "<tt>", plain)}, unchanged) ==
        Ids{{12, 0, 4}, {12, 16, 12}, {16, 0, 11}, {3, 16}, {15, 0, 6}, {12, 3, 17, 13, 5}});
  CHECK(
      tokens({added(16, "<t>", {{"lstrip", true}, {"rstrip", true}}), added(17, "<tt>", {{"rstrip", true}})},
             unchanged) ==
      Ids{{12, 16, 12}, {12, 16, 12}, {16, 16, 3, 11}, {16}, {15, 16, 3, 0, 6}, {12, 3, 17, 3, 5}});
  const json both{added(16, "<t>", plain), added(17, "<tt>", normalized)};
  CHECK(tokens(both, [](JsonFolder& f) { f.metaspace("first", false); }) ==
        Ids{{12, 16, 4}, {12, 3, 16, 12}, {16, 16, 11}, {3, 16}, {15, 16, 0, 6}, {12, 3, 17, 3, 5}});
  CHECK(tokens(both, [](JsonFolder& f) { f.metaspace("always", true); }) ==
        Ids{{12, 16, 12}, {12, 3, 16, 12}, {16, 16, 3, 11}, {3, 16}, {15, 16, 3, 0, 6}, {12, 3, 17, 3, 5}});
  CHECK(tokens(both, [](JsonFolder& f) { f.metaspace("never", false); }) ==
        Ids{{4, 16, 4}, {4, 3, 16, 12}, {16, 16, 11}, {3, 16}, {9, 16, 0, 6}, {4, 3, 17, 3, 5}});

  if (TextPattern::has_regular_expressions()) {
    const json single{{"single_word", true}};
    CHECK(tokens({added(16, "<t>", plain), added(4, "a", single), added(9, "ab", single)}, unchanged) ==
          Ids{{4, 16, 4}, {4, 13, 16, 13, 4}, {16, 16, 3, 11}, {13, 16}, {9, 16, 3, 0, 6}, {4, 13, 0, 3, 5}});
    JsonFolder words;
    words.file["added_tokens"].push_back(added(4, "a", single));
    CHECK(words.read().encode("ca a") == std::vector<Token>{1, 3, 14, 3, 4});
    CHECK(words.read().encode("a\xc3\xa9 \xc3\xa9"
                              "a a_ (a)") ==
          std::vector<Token>{1, 12, 7, 8, 3, 7, 8, 4, 12, 0, 3, 0, 4, 3, 0});
  }

  JsonFolder folder;
  folder.file["added_tokens"].push_back(added(16, "<t>", {{"special", true}}));
  CHECK(folder.read().encode("a<t>") == std::vector<Token>{1, 12, 0});  // as text
  CHECK(folder.read().bytes(16).empty());
}

TEST_CASE("vocabularies are compared token by token, and by fingerprints") {
  const std::vector<std::string> one{"<s>", "a", "b"}, longer{"<s>", "a", "b", "c"}, other{"<s>", "b", "a"},
      hole{"<s>", "", "b"};
  CHECK_FALSE(vocabulary_difference(one, "x", one, "y"));
  CHECK_FALSE(vocabulary_difference(one, "x", longer, "y"));  // what only one has is padding in the other
  CHECK_FALSE(vocabulary_difference(hole, "x", other, "y") == std::nullopt);
  CHECK(vocabulary_difference(one, "x", other, "y") == "token 1 is 'a' in x and 'b' in y");
  CHECK(vocabulary_difference(hole, "x", other, "y") == "token 2 is 'b' in x and 'a' in y");
  CHECK(fingerprint(one) == fingerprint(std::vector<std::string>{"<s>", "a", "b"}));
  CHECK(fingerprint(one).size() == 16);
  CHECK(fingerprint(std::vector<std::string>{"a"}) == "089be207b544f1e4");  // FNV-1a of "a" and a zero byte
  for (const auto& unlike : {longer, other, hole, {"<s>", "ab", ""}})
    CHECK(fingerprint(one) != fingerprint(unlike));
  CHECK(may_be_of(fingerprint(one), one));
  CHECK_FALSE(may_be_of(fingerprint(one), other));
  CHECK(may_be_of("", other));
  CHECK(may_be_of(fingerprint(one), {}));
}

TEST_CASE("tokenizer.json: beginning and end tokens from the files beside it") {
  const JsonFolder folder;
  write_file(folder.path / "special_tokens_map.json", R"({"bos_token": "a", "eos_token": {"content": "b"}})");
  CHECK(folder.read().end() == 5);
  CHECK(folder.read().encode("c").front() == 1);  // as the post_processor says
  write_file(folder.path / "tokenizer_config.json", R"({"eos_token": null, "add_bos_token": true})");
  CHECK(folder.read().end() == 5);
  CHECK(folder.read().encode("c").front() == 4);
  write_file(folder.path / "tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  CHECK(folder.complaint() == (folder.path / "tokenizer_config.json").string() +
                                  ": key 'eos_token': token '<|end|>' is not in the vocabulary");
}

TEST_CASE(
    "tokenizer.json: beginning and end tokens are not printed, even if the file does not mark them as "
    "special") {
  JsonFolder folder;
  for (json& added : folder.file["added_tokens"]) added["special"] = false;
  const Tokenizer tokenizer = folder.read();
  CHECK(tokenizer.bytes(1).empty());
  CHECK(tokenizer.bytes(2).empty());
  CHECK(tokenizer.decode(std::vector<Token>{1, 4, 5, 2}) == "ab");
}

TEST_CASE("tokenizer.json: errors name unsupported kinds and the alternative") {
  const auto complaint = [](auto change) {
    JsonFolder folder;
    change(folder.file);
    return folder.complaint();
  };
  CHECK(complaint([](json& f) {
          f["pre_tokenizer"] = {{"type", "Whitespace"}};
        }) ==
        "a pre_tokenizer Whitespace is not read; put the SentencePiece model, if there is one, beside it as "
        "tokenizer.model, or run the model as a GGUF file in llama.cpp (specula run --engine llama.cpp)");
  CHECK(
      complaint([](json& f) { f["model"]["type"] = "Unigram"; }).starts_with("a model Unigram is not read"));
  CHECK(complaint([](json& f) {
          f["normalizer"] = {{"type", "NFKC"}};
        }).starts_with("a normalizer NFKC is not read"));
  CHECK(
      complaint([](json& f) {
        f["normalizer"] = nullptr;
      }).starts_with("a tokenizer whose normalizer and pre_tokenizer leave spaces as they are is not read"));
  CHECK(complaint([](json& f) {
          f["model"]["end_of_word_suffix"] = "</w>";
        }).starts_with("end_of_word_suffix is not read"));
  CHECK(complaint([](json& f) { f["model"]["merges"] = {"ab"}; }) ==
        "key 'model': key 'merges': 'ab' has no space");
  CHECK(complaint([](json& f) { f["model"]["merges"] = {"a q"}; }) ==
        "key 'model': key 'merges': token 'q' is not in the vocabulary");
  CHECK(complaint([](json& f) { f["model"]["vocab"]["a"] = -1; }) ==
        "key 'model': key 'vocab': key 'a': expected an integer from 0 to 2147483647, found -1");
  CHECK(complaint([](json& f) { f.erase("model"); }) == "key 'model': missing, expected an object");
}

TEST_CASE("tokenizer.json of a model from elsewhere: the same tokens as Hugging Face's library") {
  const fs::path folder = SPECULA_SHARED_DIR "/models/tinystories-656k";
  if (!fs::exists(folder)) return specula_test::skip("no tinystories-656k");
  const Tokenizer tokenizer(folder);
  CHECK(tokenizer.vocab_size() == 2048);
  CHECK(tokenizer.end() == 2);
  const auto check = [&](const std::string& text, const std::vector<Token>& expected) {
    CAPTURE(text);
    CHECK(tokenizer.encode(text) == expected);
  };
  check("Once upon a time there was a little girl named Lily.",
        {1, 80, 147, 201, 282, 81, 286, 598, 629, 10});
  check("  two leading, na\xc3\xafve", {1, 80, 80, 80, 1209, 656, 56, 1670, 557, 0, 1032});
  check("", {1});
  check(" ", {1, 80, 80});
  check("Tom said, \"Hello!\"\n\nThe end.\t", {1, 80, 388, 204, 1288, 67, 572, 1767, 183, 10, 0});
  check("a  b   c    d e ", {1, 104, 80, 1927, 80, 80, 55, 80, 80, 80, 80, 82, 81});
  check("aaaa aaaaaaa banana bananas mississippi the the andand thth",
        {1,   85,  53, 53, 53,   85, 53,  53,  53,  53, 53,  134, 54,   116, 116, 134, 54,
         116, 116, 53, 89, 1549, 71, 360, 601, 151, 61, 108, 93,  1059, 135, 83,  83});
}
