// SPDX-License-Identifier: MIT
// shared_vocabulary(): vocabularies of a target and a draft that are equal, differ in padding, or differ in a
// token. Text and tokens by them.
#include <specula/llama_cpp/vocabulary.hpp>

#include <specula/llama_cpp/text.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../files/safetensors_writer.hpp"
#include "tiny_gguf.hpp"

using namespace specula_test;
using specula::llama_cpp::end_tokens;
using specula::llama_cpp::shared_vocabulary;
using specula::llama_cpp::token_bytes;

namespace {

/// Models with a vocabulary only.
struct Models {
  TemporaryDirectory directory{"llama_cpp_vocabulary"};
  int files = 0;
  Models() { quiet(); }
  std::shared_ptr<llama_model> operator()(const TinyVocabulary& vocabulary) {
    return tiny_model(directory.path / (std::to_string(files++) + ".gguf"), "llama", vocabulary);
  }
};

TinyVocabulary with(TinyVocabulary vocabulary, const TinyVocabulary& more) {
  vocabulary.insert(vocabulary.end(), more.begin(), more.end());
  return vocabulary;
}

std::string message(const std::string& what) {
  return "the draft does not have the target's vocabulary: token " + what;
}

const TinyVocabulary kWords = tiny_vocabulary({"one", "two", "three"});  // 7 tokens

}  // namespace

TEST_CASE("equal vocabularies: their size") {
  Models model;
  const auto a = model(kWords), b = model(kWords);
  REQUIRE(llama_vocab_n_tokens(llama_model_get_vocab(a.get())) == 7);
  CHECK(shared_vocabulary(*a, *b) == 7);
  CHECK(shared_vocabulary(*a, *a) == 7);
  // Types of tokens do not matter if the texts agree.
  TinyVocabulary other = kWords;
  other[6].kind = TinyToken::control;
  CHECK(shared_vocabulary(*a, *model(other)) == 7);
}

TEST_CASE("different tokens: the error names the first, with both texts") {
  Models model;
  const auto target = model(kWords);
  const auto differs = [&](const TinyVocabulary& draft, const std::string& forth, const std::string& back) {
    const auto other = model(draft);
    CHECK_THROWS_WITH_AS(shared_vocabulary(*target, *other), message(forth).c_str(), std::runtime_error);
    CHECK_THROWS_WITH_AS(shared_vocabulary(*other, *target), message(back).c_str(), std::runtime_error);
  };
  differs(tiny_vocabulary({"one", "2", "3"}), "5 is 'two' in the target and '2' in the draft",
          "5 is '2' in the target and 'two' in the draft");
  differs(tiny_vocabulary({"one", "two", "3"}), "6 is 'three' in the target and '3' in the draft",
          "6 is '3' in the target and 'three' in the draft");
  TinyVocabulary first = kWords;
  first[0].text = "<none>";
  differs(first, "0 is '<unk>' in the target and '<none>' in the draft",
          "0 is '<none>' in the target and '<unk>' in the draft");
  // A difference is reported before a missing token.
  differs(tiny_vocabulary({"one", "two", "3", "four"}), "6 is 'three' in the target and '3' in the draft",
          "6 is '3' in the target and 'three' in the draft");
  // Unused tokens are compared as any other.
  TinyVocabulary unused = kWords;
  unused[6] = {"unused", TinyToken::unused};
  differs(unused, "6 is 'three' in the target and 'unused' in the draft",
          "6 is 'unused' in the target and 'three' in the draft");
}

TEST_CASE("longer by unused tokens, on either side: the shorter one's size") {
  Models model;
  const auto plain = model(kWords);
  for (const int count : {1, 5}) {
    TinyVocabulary padding;
    for (int i = 0; i < count; ++i) padding.push_back({"pad" + std::to_string(i), TinyToken::unused});
    const auto longer = model(with(kWords, padding));
    CHECK(shared_vocabulary(*plain, *longer) == 7);
    CHECK(shared_vocabulary(*longer, *plain) == 7);
    CHECK(shared_vocabulary(*longer, *longer) == 7 + count);
  }
}

TEST_CASE("longer by a used token, on either side: the error names it as missing in the other") {
  Models model;
  const auto plain = model(kWords);
  for (const auto kind : {TinyToken::normal, TinyToken::control, TinyToken::byte}) {
    const TinyToken pad{"pad", TinyToken::unused}, more{"<0x41>", kind};
    for (const int at : {7, 8, 9}) {
      TinyVocabulary rest(static_cast<std::size_t>(at - 7), pad);
      for (std::size_t i = 0; i < rest.size(); ++i) rest[i].text += std::to_string(i);
      const auto longer = model(with(with(kWords, rest), {more, {"last"}}));
      const std::string token = std::to_string(at) + " is ";
      CHECK_THROWS_WITH_AS(shared_vocabulary(*longer, *plain),
                           message(token + "'<0x41>' in the target and not there in the draft").c_str(),
                           std::runtime_error);
      CHECK_THROWS_WITH_AS(shared_vocabulary(*plain, *longer),
                           message(token + "not there in the target and '<0x41>' in the draft").c_str(),
                           std::runtime_error);
    }
  }
}

TEST_CASE("a file without token texts: the error names the model, and nothing aborts") {
  Models model;
  const auto plain = model(kWords);
  const auto none = tiny_model(model.directory.path / "none.gguf", "llama", kWords, "none");
  REQUIRE(llama_vocab_n_tokens(llama_model_get_vocab(none.get())) == 7);
  CHECK_THROWS_WITH_AS(shared_vocabulary(*none, *plain), "the target's file has no vocabulary to compare",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(shared_vocabulary(*plain, *none), "the draft's file has no vocabulary to compare",
                       std::runtime_error);
}

TEST_CASE("every token that ends a text or an answer") {
  Models model;
  const auto one = model(kWords), two = model(with(kWords, {{"<|im_end|>", TinyToken::control},
                                                            {"<|eot_id|>", TinyToken::control}}));
  CHECK(end_tokens(llama_model_get_vocab(one.get())) == std::vector<specula::Token>{2});
  CHECK(end_tokens(llama_model_get_vocab(two.get())) == std::vector<specula::Token>{2, 7, 8});
  CHECK(token_bytes(llama_model_get_vocab(two.get()), 7).empty());
  CHECK(token_bytes(llama_model_get_vocab(two.get()), 4) == "one");
}

TEST_CASE("a pointer of Git LFS is called that") {
  const TemporaryDirectory folder("llama_cpp_lfs");
  quiet();
  write_file(folder.path / "x.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  CHECK_THROWS_WITH_AS(specula::llama_cpp::load(folder.path / "x.gguf"),
                       ((folder.path / "x.gguf").string() +
                        ": is a Git LFS pointer, not the file: `git lfs pull` in its repository fetches that")
                           .c_str(),
                       std::runtime_error);
}
