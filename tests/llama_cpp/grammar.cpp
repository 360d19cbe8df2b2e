// SPDX-License-Identifier: MIT
// Grammar: texts that a grammar allows, of every pipeline and in any order of nodes.
#include <doctest/doctest.h>

#include <specula/llama_cpp/grammar.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <specula/llama_cpp/model.hpp>
#include <specula/model/processed.hpp>
#include <specula/specula.hpp>

#include "pack.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula::llama_cpp;
using namespace specula_test;

namespace {

using List = std::vector<Token>;

std::string text_of(const llama_vocab* vocab, const List& tokens) {
  std::string text;
  for (const Token token : tokens) {
    char piece[256];
    const std::int32_t size = llama_token_to_piece(vocab, token, piece, sizeof piece, 0, false);
    REQUIRE(size >= 0);
    text.append(piece, static_cast<std::size_t>(size));
  }
  return text;
}
List tokens_of(const llama_vocab* vocab, const std::string& text) {
  List tokens(text.size() + 8);
  const std::int32_t count =
      llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                     static_cast<std::int32_t>(tokens.size()), true, false);
  REQUIRE(count > 0);
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}
/// What is left of a row of zeros after a path, by a sampler of its own that has read it from the beginning.
std::vector<bool> allowed_by_itself(const llama_vocab* vocab, const char* grammar, Tokens text) {
  const std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> sampler(
      llama_sampler_init_grammar(vocab, grammar, "root"), &llama_sampler_free);
  for (const Token token : text) llama_sampler_accept(sampler.get(), token);
  std::vector<llama_token_data> candidates;
  for (llama_token t = 0; t < llama_vocab_n_tokens(vocab); ++t) candidates.push_back({t, 0, 0});
  llama_token_data_array all{candidates.data(), candidates.size(), -1, false};
  llama_sampler_apply(sampler.get(), &all);
  std::vector<bool> allowed;
  for (const llama_token_data& one : candidates) allowed.push_back(std::isfinite(one.logit));
  return allowed;
}
std::vector<bool> allowed(const Grammar& grammar, Tokens path, std::size_t vocab) {
  std::vector<float> row(vocab);
  grammar(path, row);
  std::vector<bool> out;
  for (const float logit : row) out.push_back(std::isfinite(logit));
  return out;
}

constexpr char kSums[] = "root ::= number (\" + \" number)* \" = \" number\nnumber ::= [1-9] [0-9]{0,2}";

}  // namespace

TEST_CASE("a row keeps what libllama's sampler keeps that reads its path alone, in any order of paths") {
  const auto file = pack_model("small");
  const llama_vocab* const vocab = llama_model_get_vocab(file.get());
  const auto size = static_cast<std::size_t>(llama_vocab_n_tokens(vocab));
  const List prompt{5, 6, 7};
  const Grammar grammar(vocab, kSums, prompt.size());
  Random random(3);
  std::vector<List> paths{prompt};  // each allowed
  std::size_t tokens = 0;
  for (int step = 0; step < 150; ++step) {
    const List path = paths[static_cast<std::size_t>(random.below(static_cast<int>(paths.size())))];
    const std::vector<bool> found = allowed(grammar, path, size);
    REQUIRE(found == allowed_by_itself(vocab, kSums, Tokens(path).subspan(prompt.size())));
    List next;
    for (std::size_t t = 0; t < size; ++t)
      if (found[t]) next.push_back(static_cast<Token>(t));
    REQUIRE(!next.empty());
    List longer = path;
    longer.push_back(next[static_cast<std::size_t>(random.below(static_cast<int>(next.size())))]);
    tokens = std::max(tokens, longer.size());
    if (!llama_vocab_is_eog(vocab, longer.back())) paths.push_back(std::move(longer));
  }
  CHECK(tokens > prompt.size() + 4);
}

TEST_CASE("more paths than it keeps: the same rows") {
  const auto file = pack_model("small");
  const llama_vocab* const vocab = llama_model_get_vocab(file.get());
  const auto size = static_cast<std::size_t>(llama_vocab_n_tokens(vocab));
  const Grammar grammar(vocab, "root ::= [0-9]*");
  List digits;
  const std::vector<bool> first = allowed(grammar, {}, size);
  for (std::size_t t = 0; t < size; ++t)
    if (first[t] && !llama_vocab_is_eog(vocab, static_cast<Token>(t)))
      digits.push_back(static_cast<Token>(t));
  REQUIRE(digits.size() > 2);
  List path;
  while (path.size() < Grammar::kStates + 300) {
    path.push_back(digits[path.size() % digits.size()]);
    if (path.size() % 100 == 0) CHECK(allowed(grammar, path, size) == first);
  }
}

TEST_CASE("texts of the grammar, the same with drafts as without") {
  const auto target_file = pack_model("base"), draft_file = pack_model("small");
  const llama_vocab* const vocab = llama_model_get_vocab(target_file.get());
  const List prompt = tokens_of(vocab, "Ann has 3 pens and buys 4. As a sum:");
  const Grammar grammar(vocab, kSums, prompt.size());
  List stop;
  for (Token t = 0; t < llama_vocab_n_tokens(vocab); ++t)
    if (llama_vocab_is_eog(vocab, t)) stop.push_back(t);
  const std::regex sum("[1-9][0-9]{0,2}( \\+ [1-9][0-9]{0,2})* = [1-9][0-9]{0,2}");
  int ended = 0;
  for (const float temperature : {0.0f, 1.0f}) {
    std::vector<std::vector<List>> texts;  // by the length of the chains
    std::vector<std::int64_t> rounds;
    for (const std::int32_t length : {1, 5}) {
      Model target(target_file, exact_options(256)), draft(draft_file, exact_options(256));
      Processed masked(target, grammar), masked_draft(draft, grammar);
      Speculator run{TreeVerifier{masked, Sampling{}, {.temperature = temperature}},
                     ModelDrafter{masked_draft}, Chain<>{.length = length}};
      texts.emplace_back();
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        List& text = texts.back().emplace_back();
        run.generate(prompt, {.max_new_tokens = 60, .stop = stop}, PhiloxRandom{seed},
                     [&](Tokens more) { text.insert(text.end(), more.begin(), more.end()); });
        if (std::ranges::find(stop, text.back()) == stop.end()) continue;
        const std::string shown = text_of(vocab, {text.begin(), text.end() - 1});
        CAPTURE(shown);
        CHECK(std::regex_match(shown, sum));
        ++ended;
      }
      rounds.push_back(run.stats().rounds);
    }
    if (temperature > 0) continue;
    CHECK(texts[0] == texts[1]);
    CHECK(rounds[1] < rounds[0]);
  }
  CHECK(ended > 0);
}

TEST_CASE("a text that is not the grammar's is an error, end of text included, and the next row is right") {
  const auto file = pack_model("small");
  const llama_vocab* const vocab = llama_model_get_vocab(file.get());
  const auto size = static_cast<std::size_t>(llama_vocab_n_tokens(vocab));
  const Grammar grammar(vocab, kSums);
  const std::vector<bool> first = allowed(grammar, {}, size);
  Token excluded = 0;
  while (first[static_cast<std::size_t>(excluded)]) ++excluded;
  std::vector<float> row(size);
  for (const Token wrong : {excluded, llama_vocab_eos(vocab)}) {
    CHECK_THROWS_WITH_AS(grammar(List{wrong}, row), doctest::Contains("which the grammar does not allow"),
                         std::runtime_error);
    CHECK(allowed(grammar, {}, size) == first);
  }
}

TEST_CASE("a grammar that cannot be read, and a vocabulary that is none, are refused") {
  const auto file = pack_model("small");
  const llama_vocab* const vocab = llama_model_get_vocab(file.get());
  for (const char* text : {"", "root ::= (", "other ::= \"a\"", "root ::= missing"})
    CHECK_THROWS_WITH_AS(Grammar(vocab, text), doctest::Contains("cannot read the grammar"),
                         std::invalid_argument);
  CHECK_THROWS_WITH_AS(Grammar(nullptr, kSums), doctest::Contains("no vocabulary"), std::invalid_argument);
  const Grammar grammar(vocab, kSums);
  std::vector<float> row(static_cast<std::size_t>(llama_vocab_n_tokens(vocab)) + 1);
  CHECK_THROWS_WITH_AS(grammar({}, row), doctest::Contains("a vocabulary of"), std::invalid_argument);
}
