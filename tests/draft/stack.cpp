// SPDX-License-Identifier: MIT
// Stack: several drafters as one.
#include <specula/draft/stack.hpp>

#include <doctest/doctest.h>

#include <specula/draft/max_gram.hpp>
#include <specula/draft/model_drafter.hpp>

#include <type_traits>
#include <vector>

#include "hash_gram.hpp"
#include "toy_model.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// Returns `token`, and records its calls.
struct Listener {
  Token token = 0;
  std::int32_t vocab = 5, room = 100;
  std::vector<Token> context = {}, draft_tokens = {};
  std::int32_t truncated = -1, reserved = -1;
  std::int32_t vocab_size() const { return vocab; }
  std::int32_t capacity() const { return room; }
  void truncate(std::int32_t n) { truncated = n; }
  void sync(Tokens c, Tokens g) {
    context.assign(c.begin(), c.end()), draft_tokens.assign(g.begin(), g.end());
  }
  PointMasses extend(Tokens, Nodes) { return {{&token, 1}}; }
  void reserve(const Sizes& sizes) { reserved = sizes.tokens; }
};

using Dense = ModelDrafter<ToyModel>;
static_assert(Drafter<Stack<Dense, Listener>> && LogitsDrafter<Stack<Dense, Listener>>);
static_assert(Drafter<Stack<Listener, Dense>> && !LogitsDrafter<Stack<Listener, Dense>>);
static_assert(Stack<Listener>::kMembers == 1 && Stack<Listener, Dense, Listener>::kMembers == 3);

}  // namespace

TEST_CASE("members of a stack, best first, and calls that go to all of them") {
  Stack stack{Listener{.token = 1, .room = 50}, Listener{.token = 2, .room = 30},
              Listener{.token = 3, .room = 40}};
  static_assert(std::is_same_v<decltype(stack), Stack<Listener, Listener, Listener>>);
  CHECK(stack.head().token == 1);
  CHECK(stack.get<0>().token == 1);
  CHECK(stack.get<1>().token == 2);
  CHECK(stack.get<2>().token == 3);
  CHECK(stack.tail().head().token == 2);
  CHECK(stack.tail().tail().head().token == 3);
  CHECK(&stack.get<2>() == &stack.tail().tail().head());
  CHECK(stack.vocab_size() == 5);
  CHECK(stack.capacity() == 50);  // the first one's

  const std::vector<Token> context = {1, 2, 3}, draft_tokens = {4};
  const NodeId parent = kNoParent;
  stack.sync(context, draft_tokens);
  stack.truncate(7);
  stack.reserve({.tokens = 99});
  for (const Listener* member : {&stack.get<0>(), &stack.get<1>(), &stack.get<2>()}) {
    CHECK(member->context == context);
    CHECK(member->draft_tokens == draft_tokens);
    CHECK(member->truncated == 7);
    CHECK(member->reserved == 99);
  }
  CHECK(stack.extend({&context[0], 1}, {&parent, 1}).tokens[0] == 1);  // the first drafter's
  CHECK(stack.tail().extend({&context[0], 1}, {&parent, 1}).tokens[0] == 2);
}

TEST_CASE("members without room for a draft token are left out") {
  Stack stack{Listener{.token = 1, .room = 30}, Listener{.token = 2, .room = 20},
              Listener{.token = 3, .room = 50}};
  CHECK(stack.room(10) == 10);
  CHECK(stack.room(18) == 2);
  CHECK(stack.room(19) == 11);  // the second would have room for the root alone
  CHECK(stack.room(29) == 21);
  CHECK(stack.room(48) == 2);
  CHECK(stack.room(49) <= 1);
  CHECK(stack.room(60) <= 1);
  CHECK(Stack{Listener{.room = 30}}.room(12) == 18);
  CHECK(Stack{Listener{.room = 3}, MaxGram(5)}.room(12) > 1000);
  const std::vector<Token> shorter(18, 1), longer(20, 1);
  stack.sync(shorter, {});
  stack.sync(longer, {});
  CHECK(stack.get<0>().context == longer);
  CHECK(stack.get<1>().context == shorter);
  CHECK(stack.get<2>().context == longer);
}

TEST_CASE("usage of each member, and of all together") {
  ToyModel first(5, 1), second(5, 2);
  Stack stack{ModelDrafter{first}, HashGram(5, 3), ModelDrafter{second}, MaxGram(5)};
  const std::vector<Token> context = {1, 2}, tokens = {3, 4};
  const std::vector<NodeId> parents = {kNoParent, 0};
  stack.reserve({.tokens = 50});
  stack.sync(context, {});
  stack.get<0>().extend(tokens, parents);
  stack.get<1>().extend(tokens, parents);
  stack.get<2>().extend({&tokens[0], 1}, {&parents[0], 1});
  stack.get<2>().extend({&tokens[1], 1}, {&parents[1], 1});
  stack.get<2>().extend({&tokens[1], 1}, {&parents[1], 1});
  stack.get<3>().extend(tokens, parents);
  CHECK(stack.usage(0).calls == 1);
  CHECK(stack.usage(0).nodes == 2);
  CHECK(stack.usage(1).calls == 0);  // it does not report usage
  CHECK(stack.usage(1).seconds == 0);
  CHECK(stack.usage(2).calls == 3);
  CHECK(stack.usage(2).nodes == 3);
  CHECK(stack.usage(3).calls == 1);
  const Usage all = stack.usage();
  CHECK(all.calls == 5);
  CHECK(all.nodes == 7);
  CHECK(all.seconds ==
        doctest::Approx(stack.usage(0).seconds + stack.usage(2).seconds + stack.usage(3).seconds));
  CHECK(Stack{MaxGram(5)}.usage().calls == 0);
}

TEST_CASE("members with different vocabularies are refused, in any order") {
  CHECK_THROWS_WITH_AS((Stack{Listener{}, Listener{.vocab = 6}}),
                       "Stack: a drafter's vocabulary has 5 tokens, that of the next one 6",
                       std::invalid_argument);
  CHECK_THROWS_AS((Stack{Listener{}, Listener{}, Listener{.vocab = 4}}), std::invalid_argument);
  CHECK_THROWS_AS((Stack{Listener{.vocab = 4}, Listener{}, Listener{}}), std::invalid_argument);
}
