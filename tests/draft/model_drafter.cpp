// SPDX-License-Identifier: MIT
// ModelDrafter: a language model as drafter; which nodes its KV cache keeps.
#include <specula/draft/model_drafter.hpp>

#include <doctest/doctest.h>

#include <algorithm>

#include "random_rounds.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 4;

}  // namespace

TEST_CASE(
    "after any accepted and rejected tokens the KV cache holds context and draft tokens, and rows are those "
    "of a new model") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    ToyModel model(kVocab, 1, 2.0f, 400), fresh(kVocab, 1);
    ModelDrafter drafter(model);
    Random random(seed);
    std::vector<Token> context, draft_tokens;
    DraftNodes nodes;
    std::vector<float> want(kVocab);
    for (int round = 0; round < 60; ++round) {
      go_on(context, draft_tokens, nodes, drafter, random, kVocab, 0.05);
      // The next draft token: often the one predicted by the nodes, often none.
      const std::vector<Token> before = draft_tokens;
      draft_tokens.clear();
      for (int i = random.bernoulli(0.5) ? 0 : random.below(4); i > 0; --i)
        draft_tokens.push_back(random.below(kVocab));
      if (random.bernoulli(0.2)) draft_tokens = before;
      drafter.sync(context, draft_tokens);
      REQUIRE(model.cache() == joined(context, draft_tokens));
      if (random.bernoulli(0.2)) {
        drafter.sync(context, draft_tokens);  // repeating it changes nothing
        REQUIRE(model.cache() == joined(context, draft_tokens));
      }
      nodes = {};
      for (int call = random.below(4); call > 0; --call) {
        const DraftNodes more = nodes.grow(random, kVocab);
        const LogitsView rows = drafter.extend(more.token, more.parent);
        for (std::size_t i = 0; i < more.token.size(); ++i) {
          const std::vector<Token> text =
              joined(joined(context, draft_tokens),
                     nodes.path(static_cast<NodeId>(nodes.token.size() - more.token.size() + i)));
          fresh.row(text.size() > 1 ? text[text.size() - 2] : -1, text.back(), want.data());
          REQUIRE(std::equal(want.begin(), want.end(), rows.row(static_cast<std::int32_t>(i)).begin()));
        }
      }
      if (context.size() > 300) break;
    }
  }
}

TEST_CASE("accepted tokens are not recomputed") {
  ToyModel model(kVocab, 1);
  ModelDrafter drafter(model);
  const std::vector<Token> start = {1, 2, 3};
  drafter.sync(start, {});
  CHECK(model.appended == 3);
  const std::vector<Token> tokens = {0, 1, 2, 3};  // 0 - 1 - 2, and 3 beside 1
  drafter.extend(tokens, std::vector<NodeId>{-1, 0, 1, 0});
  CHECK(drafter.usage().calls == 1);
  CHECK(drafter.usage().nodes == 4);
  drafter.sync(std::vector<Token>{1, 2, 3, 0, 1, 2}, {});
  CHECK(model.appended == 3);
  drafter.extend(std::vector<Token>{3, 3}, std::vector<NodeId>{-1, 0});
  drafter.sync(std::vector<Token>{1, 2, 3, 0, 1, 2, 3, 1}, {});  // half of it was accepted
  CHECK(model.appended == 4);
  CHECK(model.cache() == std::vector<Token>{1, 2, 3, 0, 1, 2, 3, 1});
  // An accepted draft token is kept, and so are the nodes below it.
  drafter.sync(std::vector<Token>{1, 2, 3, 0, 1, 2, 3, 1}, std::vector<Token>{2, 2});
  CHECK(model.appended == 6);
  drafter.extend(std::vector<Token>{0, 1}, std::vector<NodeId>{-1, 0});
  drafter.sync(std::vector<Token>{1, 2, 3, 0, 1, 2, 3, 1, 2, 2, 0}, std::vector<Token>{1, 3});
  CHECK(model.appended == 7);
  CHECK(model.cache() == std::vector<Token>{1, 2, 3, 0, 1, 2, 3, 1, 2, 2, 0, 1, 3});
  // A rejected one is dropped, with everything below.
  drafter.sync(std::vector<Token>{1, 2, 3, 0, 1, 2, 3, 1, 2, 2, 0, 0}, {});
  CHECK(model.appended == 8);
}

TEST_CASE("a context that shrinks without truncate is an error") {
  ToyModel model(kVocab, 1);
  ModelDrafter drafter(model);
  drafter.sync(std::vector<Token>{1, 2, 3}, {});
  CHECK_THROWS_WITH_AS(drafter.sync(std::vector<Token>{1, 2}, {}),
                       "ModelDrafter::sync: a context of 2 tokens after one of 3; truncate first",
                       std::invalid_argument);
  drafter.truncate(1);
  CHECK(model.cache() == std::vector<Token>{1});
  drafter.sync(std::vector<Token>{1, 0}, {});
  CHECK(model.cache() == std::vector<Token>{1, 0});
  CHECK(drafter.vocab_size() == kVocab);
  CHECK(drafter.capacity() == 64);
}

TEST_CASE("after an exception of the model the drafter still works") {
  const std::vector<Token> context = {1, 2, 3};
  ToyModel model(kVocab, 1);
  ModelDrafter drafter(model);
  drafter.sync(context, {});
  SUBCASE("in an extend, its nodes already in the cache") {
    model.throw_call = model.calls + 1;
    CHECK_THROWS_AS(drafter.extend(std::vector<Token>{0}, std::vector<NodeId>{-1}), std::runtime_error);
    drafter.sync(context, {});
    drafter.extend(std::vector<Token>{0}, std::vector<NodeId>{-1});
    drafter.extend(std::vector<Token>{1}, std::vector<NodeId>{0});
    drafter.sync(std::vector<Token>{1, 2, 3, 0, 1}, {});
    CHECK(model.cache() == std::vector<Token>{1, 2, 3, 0, 1});
  }
  SUBCASE("in a second extend") {
    drafter.extend(std::vector<Token>{0}, std::vector<NodeId>{-1});
    model.throw_call = model.calls + 1;
    CHECK_THROWS_AS(drafter.extend(std::vector<Token>{2}, std::vector<NodeId>{0}), std::runtime_error);
    drafter.sync(std::vector<Token>{1, 2, 3, 0, 2}, {});
    CHECK(model.cache() == std::vector<Token>{1, 2, 3, 0, 2});
    CHECK(model.extend(std::vector<Token>{0}, std::vector<NodeId>{-1}).rows == 1);
  }
  SUBCASE("in an extend after a draft token, which the model holds") {
    drafter.sync(context, std::vector<Token>{0, 2});
    model.throw_call = model.calls + 1;
    CHECK_THROWS_AS(drafter.extend(std::vector<Token>{1}, std::vector<NodeId>{-1}), std::runtime_error);
    drafter.sync(context, std::vector<Token>{0, 2});
    CHECK(model.cache() == std::vector<Token>{1, 2, 3, 0, 2});
  }
  SUBCASE("in an append") {
    model.throw_append = model.appends + 1;
    CHECK_THROWS_AS(drafter.sync(std::vector<Token>{1, 2, 3, 0}, std::vector<Token>{1}), std::runtime_error);
    drafter.sync(std::vector<Token>{1, 2, 3, 0}, std::vector<Token>{1});
    CHECK(model.cache() == std::vector<Token>{1, 2, 3, 0, 1});
  }
}

TEST_CASE("a drafter that was moved goes on with its model") {
  ToyModel model(3, 1);
  ModelDrafter drafter(model);
  drafter.sync(std::vector<Token>{0, 1}, {});
  ModelDrafter other = std::move(drafter);
  other.sync(std::vector<Token>{0, 1, 2}, {});
  CHECK(model.cache() == std::vector<Token>{0, 1, 2});
}

TEST_CASE("seconds are those that the model reports, if it does") {
  struct Timed : ToyModel {
    using ToyModel::ToyModel;
    double spent = 0;
    LogitsView extend(Tokens tokens, Nodes parents) {
      spent += 100;
      return ToyModel::extend(tokens, parents);
    }
    double pass_seconds() const { return spent; }
  };
  static_assert(TimesItself<Timed>);
  static_assert(!TimesItself<ToyModel>);
  Timed draft(kVocab, 3);
  ToyModel plain(kVocab, 3);
  ModelDrafter drafter(draft);
  ModelDrafter other(plain);
  const std::vector<Token> context{1, 2}, token{1};
  const std::vector<NodeId> parent{kNoParent};
  drafter.sync(context, {}), other.sync(context, {});
  drafter.extend(token, parent), other.extend(token, parent);
  CHECK(drafter.usage().seconds == 100);
  CHECK(other.usage().seconds < 50);
  CHECK(other.usage().seconds > 0);
}
