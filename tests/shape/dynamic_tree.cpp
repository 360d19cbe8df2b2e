// SPDX-License-Identifier: MIT
// DynamicTree: EAGLE-2's tree, against a naive transcription.
#include <specula/shape/dynamic_tree.hpp>

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "plain_distribution.hpp"
#include "proposed.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// The pool, from the definition, by full sorts. `levels`: calls of the draft.
std::vector<DraftToken> pool(const RowOf& row_of, std::int32_t top_k, int levels) {
  std::vector<DraftToken> out;
  std::vector<int> frontier{-1};
  for (int level = 0; level < levels; ++level) {
    std::vector<int> fresh;
    for (const int f : frontier) {
      const std::vector<Top> row = ranked(row_of(text_of(kText, out, f)));
      const double reach = f < 0 ? 1.0 : out[static_cast<std::size_t>(f)].reach;
      for (std::size_t k = 0; k < row.size() && static_cast<std::int32_t>(k) < top_k; ++k) {
        fresh.push_back(static_cast<int>(out.size()));
        out.push_back({row[k].token, f, row[k].prob, reach * row[k].prob});
      }
    }
    frontier = likeliest(out, fresh, top_k);
  }
  return out;
}

}  // namespace

TEST_CASE(
    "top 10, 5 expansions, 59 draft tokens: a pool of 510, the draft over 1 + 5 * 10 nodes, 60 nodes, depth "
    "at most 6") {
  const RowOf rows = random_rows(50, 1, 4);
  ScriptedDrafter drafter(50, rows);
  DynamicTree shape;
  CHECK(shape.nodes().most == 60);
  CHECK(shape.nodes().drafted == 51);
  ProposalBuilder tree(50, 600, 0);
  propose(tree, drafter, shape);
  CHECK(tree.size() == 60);
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(drafter.widths == std::vector<int>{1, 10, 10, 10, 10, 10});
  const std::vector<DraftToken> draft_tokens = pool(rows, 10, 6);
  REQUIRE(draft_tokens.size() == 510);
  CHECK(holds(tree, draft_tokens, best(draft_tokens, 59)));
  for (NodeId n = 0; n < tree.size(); ++n) CHECK(tree.depth(n) <= 6);

  DynamicTree everything{.total = 1000};
  CHECK(everything.nodes().most == 511);
  propose(tree, drafter, everything);
  CHECK(tree.size() == 511);
  std::int32_t deepest = 0;
  for (NodeId n = 0; n < tree.size(); ++n) deepest = std::max(deepest, tree.depth(n));
  CHECK(deepest == 6);
  for (NodeId n = 1; n < 20;
       ++n) {  // a confidence is the softmax at temperature 1 of the row that it came from
    Text text;
    for (NodeId a = tree.parent(n); a > 0; a = tree.parent(a)) text.insert(text.begin(), tree.token(a));
    text.insert(text.begin(), kText.begin(), kText.end());
    CHECK(static_cast<double>(tree.confidence(n)) ==
          doctest::Approx(plain_distribution(rows(text), {})[static_cast<std::size_t>(tree.token(n))])
              .epsilon(1e-5));
  }
}

TEST_CASE(
    "the same tree as a naive transcription: random rows, rows full of ties, small vocabularies, room") {
  Random random(3);
  ProposalBuilder tree(40, 600, 0);
  DynamicTree shape;  // one shape for many rounds
  int cut = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    const RowOf rows =
        i % 2 == 0 ? flat_rows(40, i)
                   : mixed_rows(40, i, random.between(0.5, 12), i % 4 == 1 ? 0.5 : 0, i % 3 ? 0.0 : 0.9);
    ScriptedDrafter drafter(40, rows);
    shape.top_k = 1 + random.below(6);
    shape.expansions = random.below(5);
    shape.total = random.bernoulli(0.3) ? 1000 : random.below(40);
    const std::int32_t limit = random.bernoulli(0.5) ? 600 : 1 + random.below(30);
    propose(tree, drafter, shape, limit);
    const std::vector<DraftToken> draft_tokens = pool(rows, shape.top_k, 1 + shape.expansions);
    const std::vector<int> chosen = best(draft_tokens, std::min(shape.total, limit - 1));
    CAPTURE(i);
    CHECK(holds(tree, draft_tokens, chosen));  // which also fails if a parent is missing
    CHECK(tree.size() <= std::min(limit, shape.nodes().most));
    CHECK(std::accumulate(drafter.widths.begin(), drafter.widths.end(), 0) <= shape.nodes().drafted);
    cut += chosen.size() < draft_tokens.size();
  }
  CHECK(cut > 200);
}

TEST_CASE("a draft with confidences near 1: rounding makes no child likelier than its parent") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(4);
    for (std::uint64_t i = 0; i < 200; ++i) {
      const RowOf rows = [=](const Text& text) {
        std::vector<float> row = random_rows(8, i, 3)(text);
        for (float& l : row) l -= 20;
        Random at(i + text.size());
        row[static_cast<std::size_t>(at.below(8))] = static_cast<float>(at.between(-3, 30));
        return row;
      };
      ScriptedDrafter drafter(8, rows);
      ProposalBuilder tree(8, 60, 0);
      DynamicTree shape{.top_k = 3, .expansions = 5, .total = 1 + random.below(8)};
      REQUIRE_NOTHROW(propose(tree, drafter, shape));
      CHECK(tree.size() == 1 + shape.total);
      for (NodeId n = 1; n < tree.size(); ++n) CHECK(tree.confidence(n) <= 1.0f);
    }
  }
}

TEST_CASE("a drafter with an almost full KV cache: fewer levels") {
  const RowOf rows = random_rows(30, 5, 3);
  for (std::int32_t room = 0; room <= 45; ++room) {
    ScriptedDrafter drafter(30, rows, static_cast<std::int32_t>(kContext.size()) + room);
    ProposalBuilder tree(30, 60, 0);
    DynamicTree shape{.top_k = 8, .expansions = 4, .total = 30};
    CAPTURE(room);
    REQUIRE_NOTHROW(propose(tree, drafter, shape));
    const int levels = room < 1 ? 0 : std::min(5, 1 + (room - 1) / 8);
    CHECK(drafter.widths.size() == static_cast<std::size_t>(levels));
    const std::vector<DraftToken> draft_tokens = pool(rows, 8, levels);
    CHECK(holds(tree, draft_tokens, best(draft_tokens, 30)));
  }
}

TEST_CASE("no room, nothing to propose") {
  ScriptedDrafter drafter(30, random_rows(30, 5, 3));
  ProposalBuilder tree(30, 60, 0);
  DynamicTree shape;
  propose(tree, drafter, shape, 1);
  CHECK(tree.size() == 1);
  DynamicTree none{.total = 0};
  CHECK(none.nodes().most == 1);
  propose(tree, drafter, none);
  CHECK(tree.size() == 1);
  DynamicTree flat{.top_k = 4, .expansions = 0};
  CHECK(flat.nodes().most == 5);
  propose(tree, drafter, flat);
  CHECK(tree.size() == 5);
  CHECK(drafter.widths == std::vector<int>{1});
}

static_assert(ProposalShape<DynamicTree, ScriptedDrafter> &&
              DynamicTree::kind == ProposalKind::deterministic);
