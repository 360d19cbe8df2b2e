// SPDX-License-Identifier: MIT
// Horizontal: chains drafted by several drafters in turn.
#include <specula/shape/horizontal.hpp>

#include <doctest/doctest.h>

#include <specula/draft/stack.hpp>

#include <algorithm>
#include <array>
#include <vector>

#include "slow_cascade.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 5;

/// Drafter i of a seed, and the last one without rows.
RowOf row_of(std::uint64_t seed, std::uint64_t i) { return related_rows(kVocab, seed, 100 * seed + i, 0.7); }
DraftTokenOf draft_token_of(std::uint64_t seed, double silent) {
  return related_draft_tokens(kVocab, seed, 100 * seed + 9, 0.7, silent);
}
auto stack_of(std::uint64_t seed, double silent, std::int32_t capacity = 1 << 20) {
  return Stack{ScriptedDrafter(kVocab, row_of(seed, 1), capacity),
               ScriptedPoints(kVocab, draft_token_of(seed, silent)),
               ScriptedDrafter(kVocab, row_of(seed, 2), capacity)};
}

}  // namespace

TEST_CASE("counts of draft tokens by each drafter; if one has none, the next continues") {
  const ReferenceArithmetic exact;
  Random random(1);
  int cut_short = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Horizontal<3> shape{.counts = {random.below(4), random.below(4), random.below(4)}};
    const double silent = i % 2 ? 0.4 : 0;
    auto stack = stack_of(i, silent);
    ProposalBuilder tree(kVocab, shape.nodes().most, 0);
    tree.reset(kRoot, 3);
    NoUniforms rng;
    shape.propose(stack, ProposeContext{kContext, {}, shape.nodes().most}, tree, rng).run();

    SlowDrafter first{.row_of = row_of(i, 1)}, second{.draft_token_of = draft_token_of(i, silent)},
        third{.row_of = row_of(i, 2)};
    SlowText want = slow_text(kText);
    want = first.propose(want, shape.counts[0]);
    want = second.propose(want, shape.counts[1]);
    want = third.propose(want, shape.counts[2]);
    CAPTURE(i);
    REQUIRE(is_chain_of(tree, want, 4));
    CHECK(tree.kind() == ProposalKind::deterministic);
    CHECK(tree.size() <= shape.nodes().most);
    if (silent == 0) CHECK(tree.size() == shape.nodes().most);
    cut_short += tree.size() < shape.nodes().most;
  }
  CHECK(cut_short > 50);
}

TEST_CASE("sampled: each draft token from the row of its drafter, whose distribution is recorded") {
  static_assert(Horizontal<2>::kind == ProposalKind::deterministic &&
                Horizontal<2, Draw::sampled>::kind == ProposalKind::sampled);
  const Horizontal<3, Draw::sampled> shape{.counts = {2, 1, 2}};
  const SamplingParams params{.temperature = 0.8f, .top_k = 3};
  ProposalBuilder tree(kVocab, shape.nodes().most, shape.nodes().most);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    auto stack = stack_of(1, 0);
    tree.reset(kRoot, 3);
    PhiloxRandom rng(seed);
    shape.propose(stack, ProposeContext{kContext, params, 6}, tree, rng).run();
    REQUIRE(tree.size() == 6);
    CHECK(tree.kind() == ProposalKind::sampled);
    Text text = kText;
    for (NodeId n = 1; n < 6; ++n) {
      if (n == 3) {
        CHECK(tree.token(n) == draft_token_of(1, 0)(text));
        CHECK(tree.draft_distribution(n).is_point());
      } else {
        const std::vector<double> q = plain_distribution(row_of(1, n < 3 ? 1 : 2)(text), params);
        for (Token x = 0; x < kVocab; ++x)
          CHECK(tree.draft_prob(n, x) == doctest::Approx(q[static_cast<std::size_t>(x)]).epsilon(1e-5));
      }
      text.push_back(tree.token(n));
    }
  }
}

TEST_CASE("room: max_nodes, and less of it") {
  CHECK(Horizontal<3>{.counts = {2, 0, 5}}.nodes().most == 8);
  CHECK(Horizontal<2>{}.nodes().most == 1);
  CHECK(Horizontal<2>{.counts = {1 << 30, 1 << 30}}.nodes().most == 1 << 24);  // trees refuse it
  const Horizontal<3> shape{.counts = {2, 2, 2}};
  ProposalBuilder tree(kVocab, 7, 0), whole(kVocab, 7, 0);
  NoUniforms rng;
  auto all = stack_of(5, 0);
  whole.reset(kRoot, 3);
  shape.propose(all, ProposeContext{kContext, {}, 7}, whole, rng).run();
  for (std::int32_t room = 1; room <= 7; ++room) {
    auto stack = stack_of(5, 0, static_cast<std::int32_t>(kContext.size()) + room);
    tree.reset(kRoot, 3, room);
    shape.propose(stack, ProposeContext{kContext, {}, room}, tree, rng).run();
    REQUIRE(tree.size() == room);
    CHECK(std::equal(tree.tokens().begin(), tree.tokens().end(), whole.tokens().begin()));
  }
}

TEST_CASE("no drafter has draft tokens") {
  const DraftTokenOf nothing = [](const Text&) { return kNoToken; };
  Stack stack{ScriptedPoints(kVocab, nothing), ScriptedPoints(kVocab, nothing)};
  ProposalBuilder tree(kVocab, 9, 0);
  tree.reset(kRoot, 3);
  NoUniforms rng;
  Horizontal<2>{.counts = {4, 4}}.propose(stack, ProposeContext{kContext, {}, 9}, tree, rng).run();
  CHECK(tree.size() == 1);
  CHECK(stack.head().calls == 1);
  CHECK(stack.get<1>().calls == 1);
}
