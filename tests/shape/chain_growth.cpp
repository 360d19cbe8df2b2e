// SPDX-License-Identifier: MIT
// Growth of chains by one or several drafters, and reviews.
#include <specula/shape/cascade.hpp>

#include <specula/cost/curve_cost_model.hpp>

#include <doctest/doctest.h>

#include <specula/draft/stack.hpp>

#include <algorithm>
#include <array>
#include <vector>

#include "slow_cascade.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 6;

using Ids = std::vector<std::int32_t>;

/// A drafter that records its calls.
template <class Inner>
struct Spy {
  struct Call {
    Ids tokens, parents;
    friend bool operator==(const Call&, const Call&) = default;
  };
  Inner inner;
  std::vector<Ids> contexts = {}, synced = {};
  std::vector<Call> calls = {};
  std::int32_t vocab_size() const { return inner.vocab_size(); }
  std::int32_t capacity() const { return inner.capacity(); }
  void truncate(std::int32_t n) { inner.truncate(n); }
  void sync(Tokens context, Tokens draft_tokens) {
    contexts.emplace_back(context.begin(), context.end());
    synced.emplace_back(draft_tokens.begin(), draft_tokens.end());
    inner.sync(context, draft_tokens);
  }
  auto extend(Tokens tokens, Nodes parents) {
    calls.push_back({{tokens.begin(), tokens.end()}, {parents.begin(), parents.end()}});
    return inner.extend(tokens, parents);
  }
};
template <class Inner>
Spy(Inner) -> Spy<Inner>;

RowOf row_of(std::uint64_t seed) { return related_rows(kVocab, 1, seed, 0.5); }
auto dense(std::uint64_t seed, std::int32_t capacity = 1 << 20) {
  return Spy<ScriptedDrafter>{ScriptedDrafter(kVocab, row_of(seed), capacity)};
}
auto points(DraftTokenOf draft_token_of) {
  return Spy<ScriptedPoints>{ScriptedPoints(kVocab, std::move(draft_token_of))};
}
const ProposeContext kRound{kContext, {}, 20};

Text text_up_to(const TokenTree& tree, NodeId node) {
  Text out = kContext;
  for (NodeId n = 0; n <= node; ++n) out.push_back(tree.token(n));
  return out;
}
Token best(const std::vector<float>& row) {
  return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
}
/// The number of draft tokens that grow() appends.
template <Draw mode, class D, class C>
std::int32_t grown(D& drafter, const ProposeContext& round, std::int32_t count, ProposalBuilder& tree, C& rng,
                   float exit_below = 0) {
  const std::int32_t before = tree.size();
  detail::grow<mode>(drafter, round, count, tree, rng, exit_below).run();
  return tree.size() - before;
}
detail::ReviewScratch scratch_for(std::int32_t nodes) {
  detail::ReviewScratch scratch;
  scratch.reserve(1, nodes);
  return scratch;
}

}  // namespace

TEST_CASE("grow continues after the last node: the drafter's sync and node numbers") {
  ProposalBuilder tree(kVocab, 10, 0);
  tree.reset(kRoot, 3);
  tree.choose(0, 2, 1), tree.choose(1, 5, 1);
  auto drafter = dense(7);
  NoUniforms rng;
  CHECK(grown<Draw::greedy>(drafter, kRound, 3, tree, rng) == 3);
  REQUIRE(tree.size() == 6);
  CHECK(tree.is_chain());
  CHECK(drafter.contexts == std::vector<Ids>{kContext});
  CHECK(drafter.synced == std::vector<Ids>{{kRoot, 2}});  // the last node is the drafter's root
  REQUIRE(drafter.calls.size() == 3);
  CHECK(drafter.calls[0].tokens == Ids{5});
  CHECK(drafter.calls[0].parents == Ids{kNoParent});
  for (NodeId n = 3; n < 6; ++n) {
    const std::vector<float> row = row_of(7)(text_up_to(tree, n - 1));
    CHECK(tree.token(n) == best(row));
    CHECK(tree.confidence(n) ==
          doctest::Approx(plain_distribution(row, {})[static_cast<std::size_t>(best(row))]).epsilon(1e-5));
  }
  CHECK(drafter.calls[1].tokens == Ids{tree.token(3)});
  CHECK(drafter.calls[1].parents == Ids{0});
  CHECK(drafter.calls[2].parents == Ids{1});
}

TEST_CASE("grow from a root; no draft tokens, no call") {
  ProposalBuilder tree(kVocab, 10, 0);
  tree.reset(kRoot, 3);
  auto drafter = dense(7);
  NoUniforms rng;
  CHECK(grown<Draw::greedy>(drafter, kRound, 0, tree, rng) == 0);
  CHECK(drafter.calls.empty());
  CHECK(grown<Draw::greedy>(drafter, kRound, 2, tree, rng) == 2);
  CHECK(drafter.synced.back().empty());
  CHECK(drafter.calls.size() == 2);
}

TEST_CASE("grow stops without a draft token, without room, and after a draft token of low confidence") {
  NoUniforms rng;
  ProposalBuilder tree(kVocab, 10, 0);
  tree.reset(kRoot, 3);
  auto three = points([](const Text& text) {  // up to a text of seven tokens
    return text.size() < 7 ? static_cast<Token>(text.size() % kVocab) : kNoToken;
  });
  CHECK(grown<Draw::greedy>(three, kRound, 9, tree, rng) == 3);
  CHECK(tree.size() == 4);
  CHECK(tree.token(3) == 6 % kVocab);
  CHECK(three.calls.size() == 4);
  CHECK(grown<Draw::sampled>(three, kRound, 9, tree, rng) == 0);
  CHECK(tree.size() == 4);

  tree.reset(kRoot, 3, 3);
  auto tight = dense(7, 5);  // its KV cache has room for the context, the root and one more
  CHECK(grown<Draw::greedy>(tight, kRound, 9, tree, rng) == 2);
  CHECK(tree.size() == 3);
  CHECK(tight.calls.size() == 2);
  CHECK(grown<Draw::greedy>(tight, kRound, 9, tree, rng) == 0);
  CHECK(tight.calls.size() == 2);

  tree.reset(kRoot, 3);
  auto weak = dense(7);
  CHECK(grown<Draw::greedy>(weak, kRound, 9, tree, rng, 1.0f) == 1);
  CHECK(tree.size() == 2);
  tree.reset(kRoot, 3);
  CHECK(grown<Draw::greedy>(weak, kRound, 9, tree, rng, 0.01f) == 9);
  tree.reset(kRoot, 3);
  auto certain = points([](const Text&) { return 2; });
  CHECK(grown<Draw::greedy>(certain, kRound, 4, tree, rng, 1.0f) == 4);  // not after it
}

TEST_CASE("grow, sampled: rows are stored with their nodes, point masses make no draw") {
  ProposalBuilder tree(kVocab, 10, 10);
  const ProposeContext round{kContext, {.temperature = 0.8f, .top_k = 4}, 10};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    tree.reset(kRoot, 3);
    PhiloxRandom rng(seed);
    auto drafter = dense(7), other = dense(8);
    auto copies = points([](const Text&) { return 2; });
    CHECK(grown<Draw::sampled>(drafter, round, 2, tree, rng) == 2);
    CHECK(grown<Draw::sampled>(copies, round, 2, tree, rng) == 2);
    CHECK(grown<Draw::sampled>(other, round, 2, tree, rng) == 2);
    CHECK(other.synced.back() == Ids{kRoot, tree.token(1), tree.token(2), 2});
    CHECK(tree.kind() == ProposalKind::sampled);
    for (const NodeId n : {1, 2, 5, 6}) {
      const std::vector<double> q =
          plain_distribution(row_of(n < 3 ? 7 : 8)(text_up_to(tree, n - 1)), round.params);
      for (Token x = 0; x < kVocab; ++x)
        CHECK(tree.draft_distribution(n)(x) == doctest::Approx(q[static_cast<std::size_t>(x)]).epsilon(1e-5));
    }
    CHECK(tree.draft_distribution(3) == Distribution::at(2));
  }
}

TEST_CASE("review: one call of the reviewer over the nodes from base on") {
  ProposalBuilder tree(kVocab, 12, 0);
  NoUniforms rng;
  const detail::ReviewScratch scratch = scratch_for(12);
  int stopped = 0, whole = 0;
  for (std::uint64_t seed = 1; seed < 60; ++seed) {
    tree.reset(kRoot, 3);
    tree.choose(0, 2, 1), tree.choose(1, 5, 1);
    auto drafter = dense(seed), reviewer = dense(1000 + seed);
    detail::grow<Draw::greedy>(drafter, kRound, 4, tree, rng).run();
    const Text before = text_up_to(tree, 6);
    Reviews counts;
    detail::review<Draw::greedy>(reviewer, kRound, 2, 1, tree, rng, scratch, counts).run();
    CHECK(reviewer.contexts == std::vector<Ids>{kContext});
    CHECK(reviewer.synced == std::vector<Ids>{{kRoot, 2}});
    REQUIRE(reviewer.calls.size() == 1);
    CHECK(reviewer.calls[0].tokens == Ids(before.begin() + 5, before.end()));
    CHECK(reviewer.calls[0].parents == Ids{kNoParent, 0, 1, 2, 3});

    const NodeId accepted = tree.size() - 4;  // and two before base, the root, one of the reviewer's own
    REQUIRE(accepted >= 0);
    for (NodeId n = 3; n < tree.size(); ++n)
      CHECK(tree.token(n) == best(row_of(1000 + seed)(text_up_to(tree, n - 1))));
    CHECK(counts.calls == 1);
    for (NodeId d = 0; d < 4; ++d) {
      CHECK(counts.offered[static_cast<std::size_t>(d)] == (d <= accepted));
      CHECK(counts.accepted[static_cast<std::size_t>(d)] == (d < accepted));
      if (d < accepted) CHECK(tree.token(3 + d) == before[6 + static_cast<std::size_t>(d)]);
    }
    CHECK(counts.offered[4] == 0);
    (accepted == 4 ? whole : stopped) += 1;
  }
  CHECK(stopped > 10);
  CHECK(whole > 3);
}

TEST_CASE("a review without draft tokens adds the reviewer's token; without room, none") {
  NoUniforms rng;
  const detail::ReviewScratch scratch = scratch_for(5);
  ProposalBuilder tree(kVocab, 5, 0);
  tree.reset(kRoot, 3);
  auto reviewer = dense(2);
  Reviews counts;
  detail::review<Draw::greedy>(reviewer, kRound, 0, 1, tree, rng, scratch, counts).run();
  REQUIRE(tree.size() == 2);
  CHECK(tree.token(1) == best(row_of(2)(text_up_to(tree, 0))));
  CHECK(counts.calls == 1);
  CHECK(counts.offered[0] == 0);

  tree.reset(kRoot, 3);
  auto same = dense(2);
  CHECK(grown<Draw::greedy>(same, kRound, 4, tree, rng) == 4);
  detail::review<Draw::greedy>(reviewer, kRound, 0, 1, tree, rng, scratch, counts).run();
  CHECK(tree.size() == 5);  // it agrees with itself
  CHECK(counts.accepted[3] == 1);
  CHECK(counts.calls == 2);
}

TEST_CASE(
    "review, sampled: the added token is drawn from the reviewer's row, and its distribution is recorded") {
  const ProposeContext round{kContext, {.temperature = 0.8f, .top_k = 4}, 12};
  const detail::ReviewScratch scratch = scratch_for(12);
  ProposalBuilder tree(kVocab, 12, 12);
  std::vector<int> count(kVocab);
  std::vector<double> p;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    tree.reset(kRoot, 3);
    PhiloxRandom rng(seed);
    auto reviewer = dense(9);
    Reviews counts;
    detail::review<Draw::sampled>(reviewer, round, 0, 3, tree, rng, scratch, counts).run();
    REQUIRE(tree.size() == 2);
    p = plain_distribution(row_of(9)(text_up_to(tree, 0)), round.params);
    CHECK(tree.draft_prob(1, tree.token(1)) ==
          doctest::Approx(p[static_cast<std::size_t>(tree.token(1))]).epsilon(1e-5));
    CHECK(tree.kind() == ProposalKind::sampled);
    ++count[static_cast<std::size_t>(tree.token(1))];
  }
  for (std::size_t x = 0; x < p.size(); ++x)
    CHECK(std::abs(count[x] - 2000 * p[x]) <= 4.5 * std::sqrt(2000 * p[x] * (1 - p[x])));  // n 2000
}

TEST_CASE("the probability that a chain is accepted: 1 without a cost model") {
  ProposalBuilder tree(kVocab, 5, 0);
  tree.reset(kRoot, 3);
  tree.choose(0, 1, 0.5f), tree.choose(1, 1, 0.25f);
  CHECK(kRound.reach(tree, tree.size() - 1) == 1);
  AcceptanceEstimator fresh;  // from confidence
  const CostCurve curve({1.0});
  CurveCostModel cost_model(fresh, curve, curve, {.rate = 0.1});
  ProposeContext round = kRound;
  round.cost_model = &cost_model;
  CHECK(round.reach(tree, tree.size() - 1) == doctest::Approx(0.125));
}

TEST_CASE("the workspace: the parents of a chain, counts for each reviewer") {
  detail::ReviewScratch scratch;
  scratch.reserve(3, 5);
  CHECK(scratch.line == std::vector<NodeId>{-1, 0, 1, 2, 3});
  CHECK(scratch.counts.size() == 3);
  Reviews counts;
  for (int i = 0; i < 3; ++i) counts.saw(100, i == 0);  // the last depth counts deeper ones, too
  counts.saw(31, true);
  CHECK(counts.offered.back() == 4);
  CHECK(counts.accepted.back() == 2);
  using Two = Stack<ScriptedDrafter, ScriptedPoints>;
  static_assert(detail::StackOf<Two, 2> && !detail::StackOf<Two, 1> && !detail::StackOf<Two, 3> &&
                !detail::StackOf<ScriptedDrafter, 1>);
}
