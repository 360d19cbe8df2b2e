// SPDX-License-Identifier: MIT
// StaticTree: trees of a fixed form, chosen by rank or drawn.
#include <specula/shape/static_tree.hpp>

#include <doctest/doctest.h>

#include <specula/shape/chain.hpp>
#include <specula/shape/cost_aware.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "plain_distribution.hpp"
#include "proposed.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Drawn = StaticTree<ProposalKind::sampled_distinct>;

/// The draft tokens from the definition, in the form's order, without those that the rows lack.
std::vector<DraftToken> draft_tokens_of(const RankedTree& form, const RowOf& row_of) {
  std::vector<DraftToken> out;
  std::vector<int> at(static_cast<std::size_t>(form.size()), -2);  // the draft token of a node, -1: the root
  at[0] = -1;
  for (NodeId n = 1; n < form.size(); ++n) {
    const int parent = at[static_cast<std::size_t>(form.parent(n))];
    if (parent == -2) continue;
    const std::vector<Top> row = ranked(row_of(text_of(kText, out, parent)));
    const auto rank = static_cast<std::size_t>(form.rank(n));
    if (rank >= row.size()) continue;
    at[static_cast<std::size_t>(n)] = static_cast<int>(out.size());
    const double reach = parent < 0 ? 1.0 : out[static_cast<std::size_t>(parent)].reach;
    out.push_back({row[rank].token, parent, row[rank].prob, reach * row[rank].prob});
  }
  return out;
}

/// A form of up to 25 draft tokens with ranks below `vocab`; `gaps`: ranks may be left out.
RankedTree random_form(Random& random, std::int32_t vocab, bool gaps) {
  std::vector<NodeId> parents;
  std::vector<std::int32_t> ranks, next{0};
  const std::int32_t most = 1 + random.below(25);
  for (std::int32_t i = 0; i < most; ++i) {
    const NodeId parent = random.below(static_cast<std::int32_t>(parents.size()) + 1) - 1;
    const std::int32_t rank = next[static_cast<std::size_t>(parent + 1)] + (gaps ? random.below(2) : 0);
    if (rank >= vocab) continue;
    next[static_cast<std::size_t>(parent + 1)] = rank + 1;
    parents.push_back(parent), ranks.push_back(rank), next.push_back(0);
  }
  return RankedTree::from_parents(parents, ranks);
}

Text text_to(const TokenTree& tree, NodeId node) {
  Text out;
  for (NodeId n = node; n > 0; n = tree.parent(n)) out.insert(out.begin(), tree.token(n));
  out.insert(out.begin(), kText.begin(), kText.end());
  return out;
}

}  // namespace

TEST_CASE("EAGLE's tree: 26 nodes, one draft call per level, over the nodes with children") {
  const RowOf rows = random_rows(50, 1, 4);
  ScriptedDrafter drafter(50, rows);
  StaticTree<> shape;
  CHECK(shape.nodes().most == 26);
  CHECK(shape.nodes().drafted == 11);
  CHECK(shape.nodes().least == 2);
  ProposalBuilder tree(50, 30, 0);
  propose(tree, drafter, shape);
  CHECK(tree.size() == 26);
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(drafter.widths == std::vector<int>{1, 4, 4, 1, 1});
  const std::vector<DraftToken> draft_tokens = draft_tokens_of(shape.form, rows);
  CHECK(holds(tree, draft_tokens, best(draft_tokens, 25)));
}

TEST_CASE("the same tree as a naive transcription: random forms, rows with ties and gaps, room") {
  Random random(3);
  ProposalBuilder tree(12, 40, 0);
  int cut = 0, short_rows = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    const RowOf rows =
        i % 3 == 0 ? flat_rows(12, i)
                   : mixed_rows(12, i, random.between(0.5, 8), i % 4 == 1 ? 0.5 : 0, i % 5 ? 0.0 : 0.7);
    ScriptedDrafter drafter(12, rows);
    StaticTree<> shape{.form = random_form(random, 12, true)};
    const std::int32_t limit = random.bernoulli(0.5) ? 40 : 1 + random.below(20);
    propose(tree, drafter, shape, limit);
    const std::vector<DraftToken> draft_tokens = draft_tokens_of(shape.form, rows);
    CAPTURE(i);
    CHECK(holds(tree, draft_tokens, best(draft_tokens, limit - 1)));
    CHECK(drafter.widths.size() <= static_cast<std::size_t>(shape.form.depth()));
    CHECK(std::accumulate(drafter.widths.begin(), drafter.widths.end(), 0) <= shape.nodes().drafted);
    cut += static_cast<std::int32_t>(draft_tokens.size()) > limit - 1;
    short_rows += static_cast<std::int32_t>(draft_tokens.size()) < shape.form.size() - 1;
  }
  CHECK(cut > 100);
  CHECK(short_rows > 100);
}

TEST_CASE("a tree with one branch of rank 0 is a greedy chain; if drawn, a sampled chain") {
  const RankedTree line{{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}};
  for (std::uint64_t i = 0; i < 20; ++i) {
    ScriptedDrafter drafter(12, random_rows(12, i, 2));
    ProposalBuilder tree(12, 6, 6), chain(12, 6, 6);
    const auto same = [&] {
      CHECK(tree.is_chain());
      CHECK(tree.size() == 5);
      CHECK(std::equal(tree.tokens().begin(), tree.tokens().end(), chain.tokens().begin(),
                       chain.tokens().end()));
      CHECK(tree.kind() == chain.kind());
      for (NodeId n = 0; n < 5; ++n) CHECK(tree.confidence(n) == chain.confidence(n));
    };
    StaticTree<> chosen{.form = line};
    propose(tree, drafter, chosen);
    NoUniforms none;
    chain.reset(kRoot, 3);
    Chain<>{.length = 4}.propose(drafter, ProposeContext{kContext, {}, 6}, chain, none).run();
    same();
    Drawn drawn{.form = line};
    propose_drawn(tree, drafter, drawn, i, {.temperature = 0.9f});
    PhiloxRandom rng(i);
    chain.reset(kRoot, 3);
    Chain<Draw::sampled>{.length = 4}
        .propose(drafter, ProposeContext{kContext, {.temperature = 0.9f}, 6}, chain, rng)
        .run();
    same();
  }
}

TEST_CASE("drawn: the form's children, without replacement, with recorded distributions") {
  Random random(5);
  const SamplingParams params{.temperature = 0.9f, .top_p = 0.97f};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const RowOf rows = random_rows(30, seed, 1.5);
    ScriptedDrafter drafter(30, rows);
    Drawn shape{.form = seed ? random_form(random, 30, false) : RankedTree::eagle()};
    CHECK_NOTHROW(shape.validate());
    ProposalBuilder tree(30, 40, 40);
    propose_drawn(tree, drafter, shape, seed, params);
    REQUIRE(tree.size() == shape.form.size());  // rows are flat enough for all draws
    CHECK((tree.kind() == ProposalKind::sampled_distinct || tree.is_chain()));
    CHECK(drafter.widths.size() == static_cast<std::size_t>(shape.form.depth()));
    CHECK(std::accumulate(drafter.widths.begin(), drafter.widths.end(), 0) == shape.nodes().drafted);
    std::vector<std::int32_t> earlier(40);  // siblings
    for (NodeId n = 1; n < tree.size(); ++n) {
      CHECK(tree.parent(n) == shape.form.parent(n));  // drawn level by level, in the order of the form
      std::vector<double> q = plain_distribution(rows(text_to(tree, tree.parent(n))), params);
      CHECK(static_cast<double>(tree.confidence(n)) ==
            doctest::Approx(q[static_cast<std::size_t>(tree.token(n))]).epsilon(1e-4));
      double left = 1;
      tree.children(tree.parent(n), [&](NodeId c) {
        if (c == n) return false;
        CHECK(tree.token(c) != tree.token(n));
        left -= q[static_cast<std::size_t>(tree.token(c))];
        q[static_cast<std::size_t>(tree.token(c))] = 0;
        return true;
      });
      for (std::size_t x = 0; x < q.size(); ++x)
        CHECK(std::abs(tree.draft_prob(n, static_cast<Token>(x)) * left - q[x]) < 1e-5);
    }
  }
}

TEST_CASE("drawn with little room: all children of a node or none, and none of later nodes on its level") {
  const RankedTree form = RankedTree::eagle();
  const RowOf rows = random_rows(30, 4, 1);
  for (std::int32_t limit = 1; limit <= 27; ++limit) {
    ScriptedDrafter drafter(30, rows);
    ProposalBuilder tree(30, 40, 40);
    Drawn shape;
    propose_drawn(tree, drafter, shape, 9, {}, limit);
    CAPTURE(limit);
    CHECK(tree.size() <= limit);
    std::int32_t want = 1;
    std::vector<bool> there(static_cast<std::size_t>(form.size()));
    there[0] = true;
    for (std::int32_t level = 0, done = 0; level < form.depth() && !done; ++level)
      for (NodeId n = form.level(level); n < form.level(level + 1); ++n) {
        if (!there[static_cast<std::size_t>(n)] || form.children(n) == 0) continue;
        if (want + form.children(n) > limit) {
          done = level > 0 && n == form.level(level);  // nothing of a level: nothing below it
          break;
        }
        want += form.children(n);
        for (NodeId c = 0; c < form.children(n); ++c)
          there[static_cast<std::size_t>(form.first_child(n) + c)] = true;
      }
    CHECK(tree.size() == want);
    for (NodeId n = 0; n < tree.size(); ++n) {
      std::int32_t children = 0;
      tree.children(n, [&](NodeId) { return ++children > 0; });
      CHECK((children == 0 || tree.depth(n) > 0 || children == 4));
    }
  }
}

TEST_CASE("drawn at temperature 0, only the likeliest path; fewer tokens than draws, fewer children") {
  const RowOf rows = random_rows(30, 5, 2);
  ScriptedDrafter drafter(30, rows);
  ProposalBuilder tree(30, 40, 40);
  Drawn shape;
  propose_drawn(tree, drafter, shape, 1, {.temperature = 0});
  CHECK(tree.size() == 6);
  CHECK(tree.is_chain());
  CHECK(tree.kind() == ProposalKind::deterministic);
  for (NodeId n = 1; n < 6; ++n) {
    const std::vector<float> row = rows(text_to(tree, n - 1));
    CHECK(tree.token(n) == std::max_element(row.begin(), row.end()) - row.begin());
  }
  propose_drawn(tree, drafter, shape, 1, {.top_k = 2});  // of four children two, of three two
  std::vector<int> children(30);
  for (NodeId n = 1; n < tree.size(); ++n) ++children[static_cast<std::size_t>(tree.parent(n))];
  CHECK(children[0] == 2);
  CHECK(*std::max_element(children.begin(), children.end()) == 2);
  CHECK(tree.size() == 1 + 2 + 4 + 5 + 2 + 2);  // {2}, {3} and {0, 2} are missing, and all below them
}

TEST_CASE("a drafter with an almost full KV cache: fewer levels") {
  const RowOf rows = random_rows(30, 5, 3);
  for (std::int32_t room = 0; room <= 12; ++room) {
    ScriptedDrafter drafter(30, rows, static_cast<std::int32_t>(kContext.size()) + room);
    ProposalBuilder tree(30, 60, 0);
    StaticTree<> shape;
    CAPTURE(room);
    REQUIRE_NOTHROW(propose(tree, drafter, shape));
    const int levels = room < 1 ? 0 : room < 5 ? 1 : room < 9 ? 2 : room < 10 ? 3 : room < 11 ? 4 : 5;
    CHECK(drafter.widths.size() == static_cast<std::size_t>(levels));
    CHECK(tree.size() == shape.form.level(levels + 1));
  }
}

TEST_CASE("cost-aware: draft tokens whose expected gain is below their cost are left out") {
  const RowOf rows = random_rows(30, 6, 3);
  ScriptedDrafter drafter(30, rows);
  CostAware shape(StaticTree<>{}, CostCurve({1, 1.02}), CostCurve({0.02}));
  shape.reserve();
  VerifyResult result;
  ProposalBuilder tree(30, 30, 0);
  NoUniforms none;
  std::int32_t smallest = 26, largest = 0;
  for (std::int32_t round = 0; round < 40; ++round) {
    tree.reset(kRoot, 3, 30);
    shape.propose(drafter, ProposeContext{kContext, {}, 30}, tree, none).run();
    result.clear();
    if (round % 2 && tree.size() > 1) result.accepted.push_back(1);
    shape.learn(tree, result, {.target = {1, tree.size(), 1.0}, .draft = {1, 1, 0.1}});
    smallest = std::min(smallest, tree.size()), largest = std::max(largest, tree.size());
  }
  CHECK(smallest < 10);
  CHECK(largest > smallest);
}

TEST_CASE("bad fields") {
  ProposalBuilder tree(4, 30, 30);
  ScriptedDrafter drafter(4, random_rows(4, 1, 2));
  StaticTree<> wide{.form = {{0}, {4}}};
  CHECK_THROWS_WITH_AS(propose(tree, drafter, wide), "StaticTree: rank 4 in a vocabulary of 4 tokens",
                       std::invalid_argument);
  CHECK(drafter.widths.empty());
  StaticTree<> fits{.form = {{0}, {3}}};
  propose(tree, drafter, fits);
  CHECK(tree.size() == 3);
  Drawn gap{.form = {{0}, {1}, {1, 0}, {1, 2}}};
  CHECK_THROWS_WITH_AS(gap.validate(),
                       "StaticTree: the 2 children of node 2 have ranks up to 2; draws have no gaps",
                       std::invalid_argument);
  CHECK_NOTHROW(StaticTree<>{.form = gap.form}.validate());
}

static_assert(ProposalShape<StaticTree<>, ScriptedDrafter> && ProposalShape<Drawn, ScriptedDrafter>);
