// SPDX-License-Identifier: MIT
// Draft vocabularies: the most frequent tokens of the text.
#include "draft_vocabulary.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

#include "folder.hpp"

namespace st = specula_train;

namespace {

using Tokens = std::vector<std::int32_t>;

/// 20 tokens each: x has 8 times 5, 4 times 6, 2 times 7; y has 10 times 9, 3 times 6.
st::TokenizedCorpus corpus() {
  st::Document x{1}, y{1};
  const auto add = [](st::Document& to, st::Token token, std::size_t count) {
    to.insert(to.end(), count, token);
  };
  add(x, 5, 8), add(x, 6, 4), add(x, 7, 2), add(x, 8, 1), add(x, 10, 3);
  add(y, 9, 10), add(y, 6, 3), add(y, 11, 5);
  x.push_back(2), y.push_back(2);
  return {.vocab_size = 30,
          .styles = {{.name = "x", .train = {x}, .heldout = {{1, 5, 12, 2}}},
                     {.name = "y", .train = {y}, .heldout = {}}}};
}

}  // namespace

TEST_CASE("the most frequent tokens by shares, ascending, with the ends") {
  const auto both = st::count_draft_vocabulary(corpus(), {0.5, 0.5}, 3);
  CHECK(both.tokens == Tokens{2, 5, 6, 9});  // 10, 8 and 7 of 40; and the end
  CHECK(both.coverage == doctest::Approx(27.0 / 40));
  CHECK(both.heldout_coverage == doctest::Approx(2.0 / 4));  // only x has any
  const auto one = st::count_draft_vocabulary(corpus(), {1, 0}, 2, Tokens{19, 2});
  CHECK(one.tokens == Tokens{2, 5, 6, 19});
  CHECK(one.coverage == doctest::Approx(13.0 / 20));
  CHECK(st::count_draft_vocabulary(corpus(), {0.9, 0.1}, 4).tokens == Tokens{2, 5, 6, 7, 10});
}

TEST_CASE("prompts count, and marks do not matter") {
  auto marked = corpus();
  marked.styles[0].given = {10};
  st::mark_given(marked.styles[0]);
  CHECK(st::count_draft_vocabulary(marked, {1, 0}, 1).tokens == Tokens{2, 5});
}

TEST_CASE("fewer tokens where these are enough, or no others occur") {
  // Of the held-out text, which has 1, 2, 5 and 12; of the text where nothing is held out.
  CHECK(st::count_draft_vocabulary(corpus(), {1, 0}, 20, {}, 0.55).tokens == Tokens{1, 2, 5, 6, 7, 10});
  CHECK(st::count_draft_vocabulary(corpus(), {0, 1}, 20, {}, 0.55).tokens == Tokens{2, 9, 11});
  CHECK(st::count_draft_vocabulary(corpus(), {1, 0}, 20, {}, 2).tokens == Tokens{1, 2, 5, 6, 7, 8, 10});
  CHECK(st::count_draft_vocabulary(corpus(), {1, 0}, 20, {}, 2).coverage == doctest::Approx(1));
}

TEST_CASE("equal counts: the lower token") {
  CHECK(st::count_draft_vocabulary(corpus(), {1, 0}, 5).tokens == Tokens{1, 2, 5, 6, 7, 10});
}

TEST_CASE("none: all of the vocabulary") {
  const auto none = st::count_draft_vocabulary(corpus(), {1, 0}, 0);
  CHECK(none.tokens.empty());
  CHECK(none.coverage == 1);
  CHECK(st::count_draft_vocabulary(corpus(), {1, 0}, 30).tokens.empty());
}

TEST_CASE("of a folder, with the stop tokens of its files") {
  const specula_train_test::Folder folder("specula_train_draft_vocabulary_test");
  st::write_tokens(corpus(), folder.path);
  CHECK(st::count_draft_vocabulary(folder.path, 3).tokens == Tokens{2, 5, 6, 9});
  folder.write("generation_config.json", R"({"eos_token_id": [2, 17]})");
  CHECK(st::count_draft_vocabulary(folder.path, 3).tokens == Tokens{2, 5, 6, 9, 17});
}

TEST_CASE("descriptions") {
  CHECK(st::describe({}) == "all tokens");
  CHECK(st::describe({.tokens = {1, 2}, .coverage = 0.5, .heldout_coverage = 0.25}) ==
        "draft vocabulary of 2 tokens: 50.0% of the text, 25.0% of the held-out text");
}

TEST_CASE("places of tokens") {
  const auto columns = st::draft_columns({2, 5, 6}, 8);
  CHECK(torch::equal(columns, torch::tensor({-1, -1, 0, -1, -1, 1, 2, -1}, torch::kInt64)));
}

TEST_CASE("errors name a bad size and a bad end") {
  CHECK_THROWS_WITH_AS(st::count_draft_vocabulary(corpus(), {1, 0}, -1),
                       doctest::Contains("--draft-vocabulary -1"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(st::count_draft_vocabulary(corpus(), {1, 0}, 3, Tokens{30}),
                       doctest::Contains("token 30"), std::invalid_argument);
}
