// SPDX-License-Identifier: MIT
// Bigram: draft tokens from a table of pairs, or from the pairs of the text.
#include <specula/draft/bigram.hpp>

#include <doctest/doctest.h>

#include <specula/specula.hpp>

#include <map>

#include "count_allocations.hpp"
#include "random.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Text = std::vector<Token>;
constexpr float kPrior = 0.4f;

Text answers(const PointMasses& said) { return {said.tokens.begin(), said.tokens.end()}; }

/// The draft token after each token of the vocabulary.
template <class D>
Text all(D& drafter) {
  Text tokens;
  for (Token t = 0; t < drafter.vocab_size(); ++t) tokens.push_back(t);
  return answers(drafter.extend(tokens, std::vector<NodeId>(tokens.size(), kNoParent)));
}

/// The most frequent token after `token` in `text`, ties to the pair seen last.
Token most_frequent(const Text& text, Token token) {
  std::map<Token, int> count;
  Token best = kNoToken;
  for (std::size_t i = 1; i < text.size(); ++i)
    if (text[i - 1] == token && ++count[text[i]] >= count[best]) best = text[i];
  return best;
}

}  // namespace

static_assert(Drafter<Bigram>);
static_assert(!LogitsDrafter<Bigram>);

TEST_CASE("a bigram table: values and errors") {
  const BigramTable table({2, kNoToken, 0});
  CHECK(table.vocab_size() == 3);
  CHECK(table(0) == 2);
  CHECK(table(1) == kNoToken);
  CHECK(table.next().size() == 3);
  CHECK_THROWS_WITH_AS(BigramTable({}), "BigramTable: the vocabulary is empty", std::invalid_argument);
  CHECK_THROWS_WITH_AS(BigramTable({0, 2}), "BigramTable: after token 1 comes 2, the vocabulary has 2 tokens",
                       std::invalid_argument);
  CHECK(BigramTable({1, 0})(2) == kNoToken);
  CHECK(BigramTable({1, 0})(-1) == kNoToken);
  CHECK_THROWS_WITH_AS(BigramTable({-2}), "BigramTable: after token 0 comes -2, the vocabulary has 1 tokens",
                       std::invalid_argument);
}

TEST_CASE(
    "counting a table: the most frequent next token, ties to the lower one, no pairs across documents") {
  BigramCounter counter(5);
  counter.add(Text{0, 1, 0, 2, 0, 2});
  counter.add(Text{3, 2});
  counter.add(Text{3, 1});
  counter.add(Text{4});
  counter.add(Text{});
  const BigramTable table = counter.table();
  CHECK(std::vector<Token>(table.next().begin(), table.next().end()) ==
        Text{2, 0, 0, 1, kNoToken});  // 2 -> 0 once; 3 -> 1 and 3 -> 2 tie; nothing after 4
  CHECK_THROWS_WITH_AS(counter.add(Text{0, 4, 4, 5}),
                       "BigramCounter::add: token 3 is 5, the vocabulary has 5 tokens",
                       std::invalid_argument);
  CHECK(counter.table()(4) == kNoToken);  // none of that document's pairs was counted
  CHECK_THROWS_WITH_AS(BigramCounter(0), "BigramCounter: the vocabulary has 0 tokens, must be >= 1",
                       std::invalid_argument);
}

TEST_CASE("drafting from a table depends on the last token only") {
  Bigram drafter = BigramTable({2, kNoToken, 0});
  CHECK(drafter.vocab_size() == 3);
  drafter.sync(Text{1, 1, 1}, Text{0});
  CHECK(answers(drafter.extend(Text{0, 2, 1}, std::vector<NodeId>{kNoParent, 0, 1})) == Text{2, 0, kNoToken});
  CHECK(answers(drafter.extend(Text{0}, std::vector<NodeId>{2})) == Text{2});
  CHECK(drafter.usage().calls == 2);
  CHECK(drafter.usage().nodes == 4);
}

TEST_CASE("online: the most frequent committed pair, then the latest; else the table") {
  const BigramTable table({1, 1, 1, 1});
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::int32_t vocab = 4;
    Bigram alone = Bigram::online(vocab), with_table = Bigram::online(table);
    Text context;
    for (int round = 0; round < 30; ++round) {
      if (random.bernoulli(0.1)) {
        const std::int32_t n = random.below(static_cast<std::int32_t>(context.size()) + 3);
        alone.truncate(n), with_table.truncate(n);
        context.resize(std::min(context.size(), static_cast<std::size_t>(n)));
      }
      for (int i = random.below(4); i > 0; --i) context.push_back(random.below(vocab));
      const Text draft_tokens(static_cast<std::size_t>(random.below(3)),
                              2);  // draft tokens are not counted
      for (int twice = 0; twice < 2; ++twice) {
        alone.sync(context, draft_tokens), with_table.sync(context, draft_tokens);
        Text want, filled;
        for (Token t = 0; t < vocab; ++t) {
          want.push_back(most_frequent(context, t));
          filled.push_back(want.back() == kNoToken ? 1 : want.back());
        }
        REQUIRE(all(alone) == want);
        REQUIRE(all(with_table) == filled);
      }
    }
  }
}

TEST_CASE("confidences: the share of predictions that were right, with a prior") {
  Bigram drafter = BigramTable({1, 0, kNoToken});
  const auto after = [&](Token token) {
    return drafter.extend(Text{token}, std::vector<NodeId>{kNoParent}).confidence(0);
  };
  drafter.sync(Text{}, {});
  CHECK(after(0) == doctest::Approx(kPrior));
  CHECK(after(2) == 0);
  drafter.sync(Text{0, 1, 0, 1, 2, 2, 1, 1}, {});  // right, right, right, wrong, none, none, wrong
  CHECK(after(0) == doctest::Approx((3 + 16 * 0.4) / (5 + 16)));
  drafter.truncate(0);
  drafter.sync(Text{0, 0, 0, 0, 0}, {});  // a prompt
  CHECK(after(0) == doctest::Approx((3 + 16 * 0.4) / (5 + 16)));
  drafter.reset_record();
  CHECK(after(0) == doctest::Approx(kPrior));
  drafter.truncate(0);
  drafter.sync(Text{0}, {});
  drafter.sync(Text{0}, {});  // end of the prompt
  drafter.sync(Text{0, 1}, {});
  CHECK(after(0) == doctest::Approx((1 + 16 * 0.4) / (1 + 16)));
}

TEST_CASE("errors name the cause, and change nothing") {
  Bigram drafter = Bigram::online(3);
  drafter.sync(Text{0, 1, 2}, {});
  CHECK_THROWS_WITH_AS(drafter.sync(Text{0, 1}, {}),
                       "Bigram::sync: a context of 2 tokens after one of 3; truncate first",
                       std::invalid_argument);
  drafter.truncate(2);
  drafter.sync(Text{0, 1}, {});
  drafter.sync(Text{0, 1, 2}, {});
  CHECK_THROWS_WITH_AS(drafter.sync(Text{0, 1, 2, 0, 3}, {}),
                       "Bigram::sync: token 4 is 3, the vocabulary has 3 tokens", std::invalid_argument);
  CHECK_THROWS_WITH_AS(drafter.sync(Text{0, 1, 2, 0}, Text{0, -1}),
                       "Bigram::sync: token 5 is -1, the vocabulary has 3 tokens", std::invalid_argument);
  CHECK(all(drafter) == Text{1, 2, kNoToken});
  drafter.sync(Text{0, 1, 2}, {});
  CHECK_THROWS_WITH_AS(drafter.extend(Text{0, 1}, std::vector<NodeId>{kNoParent}),
                       "Bigram::extend: 2 tokens and 1 parents", std::invalid_argument);
  CHECK_THROWS_WITH_AS(drafter.extend(Text{0, 1}, std::vector<NodeId>{kNoParent, 1}),
                       "Bigram::extend: the parent of node 1 is 1, must be kNoParent or a node before it",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(drafter.extend(Text{7}, std::vector<NodeId>{kNoParent}),
                       "Bigram::extend: token 0 is 7, the vocabulary has 3 tokens", std::invalid_argument);
  CHECK_THROWS_AS(drafter.extend(Text{0}, std::vector<NodeId>{-2}), std::invalid_argument);
  CHECK_THROWS_WITH_AS(Bigram::online(0), "Bigram::online: the vocabulary has 0 tokens, must be >= 1",
                       std::invalid_argument);
}

TEST_CASE("a round allocates nothing") {
  Random random(3);
  Bigram drafter = Bigram::online(BigramTable(Text(50, 7)));
  drafter.reserve({.tokens = 1200});
  Text context;
  context.reserve(1200);
  const AllocationCount allocated;
  while (context.size() < 1000) {
    for (int i = 0; i < 3; ++i) context.push_back(random.below(50));
    drafter.sync(context, {});
    NodeId parent = kNoParent;
    for (Token token = 3; parent < 9; ++parent) token = drafter.extend({&token, 1}, {&parent, 1}).tokens[0];
  }
  const auto count = allocated.count();
  CHECK(count == 0);
}

TEST_CASE("in a pipeline the text is that of plain decoding") {
  constexpr std::int32_t kVocab = 5;
  ToyModel target(kVocab, 1, 3.0f, 400), plain_target(kVocab, 1, 3.0f, 400);
  Speculator run{TreeVerifier{target, Sampling{}}, Bigram::online(kVocab), Chain<>{.length = 4}};
  Speculator plain{TreeVerifier{plain_target, Sampling{}}, NoDrafter{kVocab}, Chain<>{.length = 4}};
  const Text prompt = {1, 2, 3};
  Text got, want;
  run.generate(prompt, {.max_new_tokens = 200}, PhiloxRandom(4),
               [&](Tokens fresh) { got.insert(got.end(), fresh.begin(), fresh.end()); });
  plain.generate(prompt, {.max_new_tokens = 200}, PhiloxRandom(4),
                 [&](Tokens fresh) { want.insert(want.end(), fresh.begin(), fresh.end()); });
  CHECK(got == want);
  CHECK(run.stats().mat() > 1.2);
}
