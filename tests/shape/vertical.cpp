// SPDX-License-Identifier: MIT
// Vertical: a drafter that reviews cheaper drafters.
#include <specula/shape/vertical.hpp>

#include <doctest/doctest.h>

#include <specula/draft/stack.hpp>

#include <algorithm>
#include <vector>

#include "slow_cascade.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 5;

RowOf row_of(std::uint64_t seed, std::uint64_t i, double apart = 0.5) {
  return related_rows(kVocab, seed, 100 * seed + i, apart);
}
DraftTokenOf draft_token_of(std::uint64_t seed, double silent) {
  return related_draft_tokens(kVocab, seed, 100 * seed + 9, 0.5, silent);
}

/// A stack, its slow reference, and a shape over them.
template <std::size_t n, class Stack>
void compare(std::uint64_t seed, Stack stack, std::vector<SlowDrafter> slow, std::int32_t reviews,
             std::int32_t length, double lenience, int& offered, int& longest) {
  Vertical<n> shape{.reviews = reviews, .length = length, .lenience = lenience};
  shape.reserve();
  ProposalBuilder tree(kVocab, shape.nodes().most, 0);
  tree.reset(kRoot, 3);
  NoUniforms rng;
  shape.propose(stack, ProposeContext{kContext, {}, shape.nodes().most}, tree, rng).run();
  SlowText want = slow_text(kText);
  for (std::int32_t r = 0; r < reviews; ++r) want = slow_hand_up(slow, 0, want, length, lenience);
  CAPTURE(seed);
  REQUIRE(is_chain_of(tree, want, 4));
  CHECK(tree.kind() == ProposalKind::deterministic);
  REQUIRE(shape.reviewed().size() == n - 1);
  for (std::size_t i = 0; i + 1 < n; ++i) {
    CHECK(shape.reviewed()[i].calls == reviews);
    for (std::size_t d = 0; d < Reviews::kDepths; ++d) {
      CHECK(shape.reviewed()[i].offered[d] == slow[i].offered[d]);
      CHECK(shape.reviewed()[i].accepted[d] == slow[i].accepted[d]);
      offered += shape.reviewed()[i].offered[d] > 0;
    }
  }
  longest += tree.size() == shape.nodes().most && reviews > 0;
}

}  // namespace

TEST_CASE("two drafters: each proposal is reviewed once") {
  const ReferenceArithmetic exact;
  Random random(1);
  int offered = 0, longest = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const std::int32_t reviews = random.below(4), length = random.below(4);
    const double lenience = seed % 2 ? 1 : 3;
    const SlowDrafter head{.row_of = row_of(seed, 1)};
    if (seed % 3 == 0) {
      compare<2>(seed,
                 Stack{ScriptedDrafter(kVocab, row_of(seed, 1)), ScriptedDrafter(kVocab, row_of(seed, 2))},
                 {head, {.row_of = row_of(seed, 2)}}, reviews, length, lenience, offered, longest);
    } else {
      const DraftTokenOf draft_tokens = draft_token_of(seed, seed % 3 == 1 ? 0 : 0.4);
      compare<2>(seed, Stack{ScriptedDrafter(kVocab, row_of(seed, 1)), ScriptedPoints(kVocab, draft_tokens)},
                 {head, {.draft_token_of = draft_tokens}}, reviews, length, lenience, offered, longest);
    }
  }
  CHECK(offered > 500);
  CHECK(longest > 50);
}

TEST_CASE("three drafters: one review of each for every proposal") {
  const ReferenceArithmetic exact;
  Random random(2);
  int offered = 0, longest = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::int32_t reviews = random.below(3), length = random.below(4);
    const double lenience = seed % 2 ? 1 : 3;
    const DraftTokenOf draft_tokens = draft_token_of(seed, seed % 4 == 0 ? 0.4 : 0);
    compare<3>(seed,
               Stack{ScriptedDrafter(kVocab, row_of(seed, 1)), ScriptedDrafter(kVocab, row_of(seed, 2)),
                     ScriptedPoints(kVocab, draft_tokens)},
               {{.row_of = row_of(seed, 1)}, {.row_of = row_of(seed, 2)}, {.draft_token_of = draft_tokens}},
               reviews, length, lenience, offered, longest);
  }
  CHECK(offered > 500);
  CHECK(longest > 20);
}

TEST_CASE("lenience applies to draft tokens with rows, not to copied ones") {
  const ReferenceArithmetic exact;
  int copied = 0, dense = 0;
  NoUniforms rng;
  const auto proposal = [&](auto stack, double lenience) {
    Vertical<2> shape{.reviews = 2, .length = 3, .lenience = lenience};
    shape.reserve();
    ProposalBuilder tree(kVocab, shape.nodes().most, 0);
    tree.reset(kRoot, 3);
    shape.propose(stack, ProposeContext{kContext, {}, shape.nodes().most}, tree, rng).run();
    return Text(tree.tokens().begin(), tree.tokens().end());
  };
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const ScriptedDrafter head(kVocab, row_of(seed, 1)), weak(kVocab, row_of(seed, 2));
    const ScriptedPoints points(kVocab, draft_token_of(seed, 0));
    copied += proposal(Stack{head, points}, 1) != proposal(Stack{head, points}, 50);
    dense += proposal(Stack{head, weak}, 1) != proposal(Stack{head, weak}, 50);
  }
  CHECK(copied == 0);
  CHECK(dense > 30);
}

TEST_CASE(
    "sampled with lenience 1: reviewed tokens have the reviewer's distribution, for any drafter below") {
  static_assert(Vertical<>::kind == ProposalKind::deterministic &&
                Vertical<2, Draw::sampled>::kind == ProposalKind::sampled);
  const SamplingParams params{.temperature = 0.9f, .top_k = 4};
  Vertical<3, Draw::sampled> shape{.reviews = 2, .length = 2};
  shape.reserve();
  ProposalBuilder tree(kVocab, shape.nodes().most, shape.nodes().most);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Stack stack{ScriptedDrafter(kVocab, row_of(3, 1)), ScriptedDrafter(kVocab, row_of(3, 2)),
                ScriptedPoints(kVocab, draft_token_of(3, 0.2))};
    tree.reset(kRoot, 3);
    PhiloxRandom rng(seed);
    shape.propose(stack, ProposeContext{kContext, params, shape.nodes().most}, tree, rng).run();
    REQUIRE(tree.size() > 2);
    CHECK(tree.kind() == ProposalKind::sampled);
    Text text = kText;
    for (NodeId n = 1; n < tree.size(); ++n) {
      const std::vector<double> p = plain_distribution(row_of(3, 1)(text), params);
      for (Token x = 0; x < kVocab; ++x)
        CHECK(tree.draft_prob(n, x) == doctest::Approx(p[static_cast<std::size_t>(x)]).epsilon(1e-5));
      text.push_back(tree.token(n));
    }
  }
}

TEST_CASE("room: max_nodes, and less of it") {
  CHECK(Vertical<>{.reviews = 5, .length = 10}.nodes().most == 56);
  CHECK(Vertical<3>{.reviews = 2, .length = 3}.nodes().most == 11);
  CHECK(Vertical<>{.reviews = 1 << 30, .length = 1 << 30}.nodes().most == 1 << 24);  // trees refuse it
  NoUniforms none;
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (std::int32_t room = 1; room <= 15; ++room) {
      const auto capacity = static_cast<std::int32_t>(kContext.size()) + room;
      const auto stack = [&] {
        return Stack{ScriptedDrafter(kVocab, row_of(seed, 1, 0.2), capacity),
                     ScriptedDrafter(kVocab, row_of(seed, 2, 0.2), capacity),
                     ScriptedPoints(kVocab, related_draft_tokens(kVocab, seed, 5, 0.2, 0.1))};
      };
      Vertical<3> greedy{.reviews = 3, .length = 3, .lenience = 2};
      Vertical<3, Draw::sampled> sampled{.reviews = 3, .length = 3, .lenience = 2};
      greedy.reserve(), sampled.reserve();
      ProposalBuilder tree(kVocab, greedy.nodes().most, greedy.nodes().most);
      tree.reset(kRoot, 3, room);
      auto first = stack(), second = stack();
      greedy.propose(first, ProposeContext{kContext, {}, room}, tree, none).run();
      CHECK(tree.size() <= room);
      CHECK(tree.size() >= std::min(room, 4));
      if (room == 1) CHECK(greedy.reviewed()[0].calls == 0);  // no calls for tokens without room
      tree.reset(kRoot, 3, room);
      PhiloxRandom rng(seed);
      sampled.propose(second, ProposeContext{kContext, {}, room}, tree, rng).run();
      CHECK(tree.size() <= room);
      CHECK(tree.size() >= std::min(room, 4));
    }
}

TEST_CASE("a drafter below without draft tokens: the reviewer drafts, a token per review") {
  const DraftTokenOf nothing = [](const Text&) { return kNoToken; };
  Stack stack{ScriptedDrafter(kVocab, row_of(1, 1)), ScriptedPoints(kVocab, nothing)};
  Vertical<> shape{.reviews = 3, .length = 4};
  shape.reserve();
  ProposalBuilder tree(kVocab, shape.nodes().most, 0);
  tree.reset(kRoot, 3);
  NoUniforms rng;
  shape.propose(stack, ProposeContext{kContext, {}, 16}, tree, rng).run();
  SlowDrafter alone{.row_of = row_of(1, 1)};
  CHECK(is_chain_of(tree, alone.propose(slow_text(kText), 3), 4));
}
