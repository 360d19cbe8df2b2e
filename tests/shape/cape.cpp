// SPDX-License-Identifier: MIT
// Cape: a greedy spine with runners-up by confidence.
#include <specula/shape/cape.hpp>

#include <doctest/doctest.h>

#include <specula/verify/tree_mask.hpp>

#include <cmath>
#include <vector>

#include "proposed.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// The shape transcribed from its definition; `room`: draft tokens that fit. Draft tokens are the spine, then
/// all extras.
std::vector<DraftToken> transcription(const RowOf& row_of, std::int32_t length, int budget,
                                      std::int32_t fixed, int room, std::vector<int>& chosen) {
  std::vector<DraftToken> spine, extras;
  Text text = kText;
  double reach = 1;
  for (int i = 0; i < length && i < budget && i < room; ++i) {
    const std::vector<Top> row = ranked(row_of(text));
    const auto p = static_cast<float>(row[0].prob);
    const int count = fixed >= 0 ? fixed : p <= 0.3f ? 7 : p <= 0.6f ? 5 : p <= 0.8f ? 3 : 1;
    for (std::size_t k = 1; k < row.size() && static_cast<int>(k) <= count; ++k)
      extras.push_back({row[k].token, i - 1, row[k].prob, reach * row[k].prob});
    reach *= row[0].prob;
    spine.push_back({row[0].token, i - 1, row[0].prob, reach});
    text.push_back(row[0].token);
  }
  std::vector<DraftToken> all = spine;
  all.insert(all.end(), extras.begin(), extras.end());
  std::vector<int> among;
  chosen.clear();
  for (std::size_t i = 0; i < all.size(); ++i)
    (i < spine.size() ? chosen : among).push_back(static_cast<int>(i));
  const auto left = std::min(budget, room) - static_cast<int>(spine.size());
  for (const int extra : likeliest(all, among, left)) chosen.push_back(extra);
  return all;
}

/// A row whose largest probability is near `p`.
RowOf rows_of_confidence(std::int32_t vocab, double p) {
  return [=](const Text& text) {
    std::vector<float> row(static_cast<std::size_t>(vocab));
    for (std::size_t x = 0; x < row.size(); ++x) row[x] = -1e-4f * static_cast<float>(x);
    row[static_cast<std::size_t>(text.size() % row.size())] =
        static_cast<float>(std::log(p / (1 - p) * (vocab - 1)));
    return row;
  };
}

}  // namespace

TEST_CASE("numbers of runners-up: 7, 5, 3, 1 for confidences in (0, .3], (.3, .6], (.6, .8], (.8, 1]") {
  constexpr CapeExtras extras;
  const auto next = [](float x) { return std::nextafter(x, 2.0f); };
  const auto last = [](float x) { return std::nextafter(x, 0.0f); };
  CHECK(extras(0.0f) == 7);
  CHECK(extras(1e-6f) == 7);
  for (const auto& [edge, below, above] : {std::tuple{0.3f, 7, 5}, {0.6f, 5, 3}, {0.8f, 3, 1}}) {
    CHECK(extras(last(edge)) == below);
    CHECK(extras(edge) == below);
    CHECK(extras(next(edge)) == above);
  }
  CHECK(extras(1.0f) == 1);
  CHECK(extras(next(1.0f)) == 1);  // nothing beyond the end
  CHECK(extras.most() == 7);
  constexpr CapeExtras fixed = CapeExtras::fixed(4);
  for (const float p : {0.1f, 0.5f, 0.7f, 1.0f}) CHECK(fixed(p) == 4);
  CHECK(fixed.most() == 4);
  CHECK(CapeExtras{.counts = {1, 2, 9, 3}}.most() == 9);
  static_assert(CapeExtras{}(0.5f) == 5);
}

TEST_CASE("four by eight: 32 nodes and the root; an extra's ancestors are the spine before its step") {
  const RowOf rows = random_rows(20, 1, 1);  // nearly flat: confidences below .3
  ScriptedDrafter drafter(20, rows);
  Cape shape;
  CHECK(shape.nodes().most == 33);
  ProposalBuilder tree(20, shape.nodes().most, 0);
  propose(tree, drafter, shape);
  REQUIRE(tree.size() == 33);
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(drafter.widths == std::vector<int>(4, 1));  // the draft never runs an extra or the spine's last node
  std::vector<std::uint64_t> mask(33 * mask_words(33));
  tree_mask(tree.parents(), mask);
  const auto sees_node = [&](NodeId a, NodeId b) {
    return sees(std::span(mask).subspan(static_cast<std::size_t>(a) * mask_words(33), mask_words(33)),
                static_cast<std::size_t>(b));
  };
  for (NodeId a = 0; a < 33; ++a)
    for (NodeId b = 0; b < 33; ++b) {
      // Nodes 1 to 4 are the spine; then come seven extras per step.
      const int step_of_a = a <= 4 ? a : (a - 5) / 7 + 1;
      const bool ancestor = b == 0 || (b <= 4 && b < step_of_a);
      CHECK(sees_node(a, b) == (a == b || (ancestor && a != 0)));
    }
  for (NodeId a = 5; a < 33; ++a) CHECK(tree.first_child(a) == kNoParent);
  Text text = kText;
  for (int step = 0; step < 4; ++step) {
    const std::vector<Top> row = ranked(rows(text));
    CHECK(tree.token(step + 1) == row[0].token);
    for (int k = 0; k < 7; ++k)
      CHECK(tree.token(5 + 7 * step + k) == row[static_cast<std::size_t>(k) + 1].token);
    text.push_back(row[0].token);
  }
}

TEST_CASE("the same tree as a naive transcription: random rows, ties, budgets, room") {
  Random random(2);
  int cut = 0, full = 0;
  ProposalBuilder tree(40, 200, 0);
  Cape reused;  // one shape for many rounds
  for (std::uint64_t i = 0; i < 1500; ++i) {
    const double spread = random.between(0.5, 12);
    const RowOf rows = i % 3 == 0 ? flat_rows(40, i) : mixed_rows(40, i, spread, i % 3 == 1 ? 0.5 : 0, 0.2);
    ScriptedDrafter drafter(40, rows);
    reused.length = random.below(7);
    reused.budget = random.bernoulli(0.5) ? 32 : random.below(20);
    const std::int32_t fixed = random.bernoulli(0.7) ? -1 : random.below(9);
    reused.extras = fixed < 0 ? CapeExtras{} : CapeExtras::fixed(fixed);
    const std::int32_t limit = random.bernoulli(0.5) ? 200 : 1 + random.below(30);
    propose(tree, drafter, reused, limit);
    std::vector<int> chosen;
    const std::vector<DraftToken> draft_tokens =
        transcription(rows, reused.length, reused.budget, fixed, limit - 1, chosen);
    CAPTURE(i);
    CHECK(holds(tree, draft_tokens, chosen));
    CHECK(tree.size() <= std::min(limit, reused.nodes().most));
    cut += chosen.size() < draft_tokens.size(), full += chosen.size() == draft_tokens.size();
    std::size_t spine = 0;
    while (spine < draft_tokens.size() && draft_tokens[spine].parent == static_cast<int>(spine) - 1 &&
           spine < static_cast<std::size_t>(reused.length))
      ++spine;
    CHECK(drafter.widths.size() == std::min<std::size_t>({static_cast<std::size_t>(reused.length),
                                                          static_cast<std::size_t>(reused.budget),
                                                          static_cast<std::size_t>(limit) - 1}));
  }
  CHECK(cut > 300);
  CHECK(full > 300);
}

TEST_CASE("confidences select the counts") {
  ProposalBuilder tree(30, 60, 0);
  for (const auto& [p, count] : {std::pair{0.2, 7}, {0.45, 5}, {0.7, 3}, {0.9, 1}, {0.9999999, 1}}) {
    ScriptedDrafter drafter(30, rows_of_confidence(30, p));
    Cape shape{.length = 3};
    propose(tree, drafter, shape);
    CHECK(static_cast<double>(tree.confidence(1)) == doctest::Approx(p).epsilon(1e-3));
    CHECK(tree.size() == 1 + 3 * (1 + count));
  }
}

TEST_CASE("small vocabularies, length 0, budget 0, no room") {
  for (std::int32_t vocab = 1; vocab <= 8; ++vocab) {
    ScriptedDrafter drafter(vocab,
                            [=](const Text&) { return std::vector<float>(static_cast<std::size_t>(vocab)); });
    ProposalBuilder tree(vocab, 33, 0);
    Cape shape{.extras = CapeExtras::fixed(7)};
    NoUniforms none;
    tree.reset(0, 3);
    shape.propose(drafter, ProposeContext{kContext, {}, 33}, tree, none).run();
    CHECK(tree.size() == 1 + 4 * vocab);  // every token of the vocabulary, once
  }
  ScriptedDrafter drafter(20, random_rows(20, 1, 1));
  ProposalBuilder tree(20, 33, 0);
  Cape none{.length = 0};
  CHECK(none.nodes().most == 1);
  propose(tree, drafter, none);
  CHECK(tree.size() == 1);
  CHECK(drafter.widths.empty());
  Cape broke{.budget = 0};
  CHECK(broke.nodes().most == 1);
  propose(tree, drafter, broke);
  CHECK(tree.size() == 1);
  CHECK(drafter.widths.empty());
  Cape shape;
  propose(tree, drafter, shape, 1);
  CHECK(tree.size() == 1);
  propose(tree, drafter, shape, 3);  // spine first
  CHECK(tree.size() == 3);
  CHECK(tree.is_chain());
  Cape narrow{.length = 6, .budget = 4};
  CHECK(narrow.nodes().most == 5);
  propose(tree, drafter, narrow);
  CHECK(tree.size() == 5);
  CHECK(tree.is_chain());
}

static_assert(ProposalShape<Cape, ScriptedDrafter> && Cape::kind == ProposalKind::deterministic);
