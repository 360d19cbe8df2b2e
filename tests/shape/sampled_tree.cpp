// SPDX-License-Identifier: MIT
// labels: optimised
// SampledTree: trees of independent or distinct draws.

#include <specula/shape/sampled_tree.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <vector>

#include "plain_distribution.hpp"
#include "proposed.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Iid = SampledTree<ProposalKind::sampled_iid>;
using Distinct = SampledTree<ProposalKind::sampled_distinct>;

std::vector<NodeId> children(const TokenTree& tree, NodeId node) {
  std::vector<NodeId> out;
  tree.children(node, [&](NodeId c) { return out.push_back(c), true; });
  return out;
}
Text text_to(const TokenTree& tree, NodeId node) {
  Text out;
  for (NodeId n = node; n > 0; n = tree.parent(n)) out.insert(out.begin(), tree.token(n));
  out.insert(out.begin(), kText.begin(), kText.end());
  return out;
}

/// The recorded distribution of every node is the plain one of its parent's row, without its earlier siblings
/// if they are distinct.
template <class S>
double worst_distribution(const TokenTree& tree, const RowOf& rows, const SamplingParams& params) {
  double worst = 0;
  for (NodeId n = 1; n < tree.size(); ++n) {
    std::vector<double> q = plain_distribution(rows(text_to(tree, tree.parent(n))), params);
    worst = worse(worst, std::abs(q[static_cast<std::size_t>(tree.token(n))] -
                                  static_cast<double>(tree.confidence(n))));
    double left = 1;
    if (S::kind == ProposalKind::sampled_distinct)
      for (const NodeId c : children(tree, tree.parent(n))) {
        if (c == n) break;
        left -= q[static_cast<std::size_t>(tree.token(c))];
        q[static_cast<std::size_t>(tree.token(c))] = 0;
      }
    for (std::size_t x = 0; x < q.size(); ++x)
      worst = worse(worst, std::abs(tree.draft_prob(n, static_cast<Token>(x)) - q[x] / left) * left);
  }
  return worst;
}

template <class S>
void check_widths() {
  const RowOf rows = random_rows(30, 1, 3);
  ScriptedDrafter drafter(30, rows);
  ProposalBuilder tree(30, 100, 100);
  const S shape{.widths = {3, 2, 1, 2}};
  CHECK(shape.nodes().most == 1 + 3 + 6 + 6 + 12);
  CHECK(shape.nodes().least == 4);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    propose_drawn(tree, drafter, shape, seed, {.temperature = 0.9f, .top_p = 0.95f});
    REQUIRE(tree.size() == 28);
    CHECK(tree.kind() == S::kind);
    CHECK(drafter.widths == std::vector<int>{1, 3, 6, 6});  // one call per level; the leaves are not run
    for (NodeId n = 0; n < tree.size(); ++n) {
      const std::size_t count = children(tree, n).size();
      const std::size_t want[] = {3, 2, 1, 2, 0};
      CHECK(count == want[tree.depth(n)]);
    }
    CHECK(worst_distribution<S>(tree, rows, {.temperature = 0.9f, .top_p = 0.95f}) < 1e-5);
  }
}

/// Both children of the root and the first child of the second: how often each triple comes, n 30,000. Every
/// cell within 4.7 standard deviations.
template <class S>
void check_frequencies() {
  constexpr int n = 30000;
  const RowOf rows = random_rows(3, 2, 1.5);
  ScriptedDrafter drafter(3, rows);
  ProposalBuilder tree(3, 20, 20);
  std::map<Text, int> counts;
  for (std::uint64_t seed = 0; seed < n; ++seed) {
    propose_drawn(tree, drafter, S{.widths = {2, 1}}, seed);
    REQUIRE(tree.size() == 5);
    REQUIRE(tree.parent(4) == 2);
    ++counts[{tree.token(1), tree.token(2), tree.token(4)}];
  }
  const std::vector<double> q = plain_distribution(rows(kText), {});
  std::size_t cells = 0;
  for (Token a = 0; a < 3; ++a)
    for (Token b = 0; b < 3; ++b) {
      Text text = kText;
      text.push_back(b);
      const std::vector<double> after = plain_distribution(rows(text), {});
      for (Token c = 0; c < 3; ++c) {
        const double second = S::kind == ProposalKind::sampled_iid ? q[static_cast<std::size_t>(b)]
                              : a == b
                                  ? 0.0
                                  : q[static_cast<std::size_t>(b)] / (1 - q[static_cast<std::size_t>(a)]);
        const double p = q[static_cast<std::size_t>(a)] * second * after[static_cast<std::size_t>(c)];
        CHECK(std::abs(counts[{a, b, c}] - n * p) <= 4.7 * std::sqrt(n * p * (1 - p)));
        cells += p > 0;
      }
    }
  CHECK(cells == (S::kind == ProposalKind::sampled_iid ? 27 : 18));
}

}  // namespace

TEST_CASE("widths, distributions, calls of the draft") {
  check_widths<Iid>();
  check_widths<Distinct>();
}

TEST_CASE("children follow the recorded distributions, independently or without repetition") {
  check_frequencies<Iid>();
  check_frequencies<Distinct>();
}

TEST_CASE("distinct siblings differ, independent ones may be alike") {
  ScriptedDrafter drafter(5, random_rows(5, 3, 2));
  ProposalBuilder tree(5, 60, 60);
  int alike = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    propose_drawn(tree, drafter, Distinct{.widths = {3, 3}}, seed);
    for (NodeId n = 0; n < tree.size(); ++n) {
      std::vector<int> seen(5);
      for (const NodeId c : children(tree, n)) ++seen[static_cast<std::size_t>(tree.token(c))];
      for (const int count : seen) CHECK(count <= 1);
    }
    propose_drawn(tree, drafter, Iid{.widths = {3}}, seed);
    alike += tree.token(1) == tree.token(2);
  }
  CHECK(alike > 20);
}

TEST_CASE("with little room, all children of a node or none") {
  const std::array<std::int32_t, 16> widths{3, 2, 2};
  const RowOf rows = random_rows(30, 4, 2);
  ProposalBuilder tree(30, 40, 40);
  for (std::int32_t limit = 1; limit <= 25; ++limit) {
    ScriptedDrafter drafter(30, rows);
    const auto check = [&](auto shape) {
      propose_drawn(tree, drafter, shape, 9, {}, limit);
      std::int32_t size = 1, level = 1;  // again, counting only
      for (const std::int32_t width : {3, 2, 2}) {
        const std::int32_t whole = std::min(level, (limit - size) / width);
        size += whole * width, level = whole * width;
      }
      CAPTURE(limit);
      CHECK(tree.size() == size);
      for (NodeId n = 0; n < tree.size(); ++n) {
        const std::size_t count = children(tree, n).size();
        CHECK((count == 0 || count == (tree.depth(n) == 0 ? 3 : 2)));
      }
      CHECK(tree.size() <= limit);
      int level_calls = 0;
      for (NodeId n = 0; n < tree.size(); ++n) level_calls = std::max(level_calls, tree.depth(n));
      CHECK(static_cast<int>(drafter.widths.size()) == level_calls);  // no call for which there is no room
    };
    check(Iid{.widths = widths});
    check(Distinct{.widths = widths});
  }
}

TEST_CASE("temperature 0: one chosen child per node; top-k 1: as many as have mass") {
  const RowOf rows = random_rows(30, 5, 2);
  ScriptedDrafter drafter(30, rows);
  ProposalBuilder tree(30, 40, 40);
  const auto check = [&](auto shape) {
    propose_drawn(tree, drafter, shape, 1, {.temperature = 0});
    CHECK(tree.size() == 4);
    CHECK(tree.is_chain());
    CHECK(tree.kind() == ProposalKind::deterministic);
    for (NodeId n = 1; n < 4; ++n) {
      const std::vector<float> row = rows(text_to(tree, n - 1));
      CHECK(tree.token(n) == std::max_element(row.begin(), row.end()) - row.begin());
    }
  };
  check(Iid{.widths = {3, 2, 1}});
  check(Distinct{.widths = {3, 2, 1}});
  propose_drawn(tree, drafter, Distinct{.widths = {3, 2, 1}}, 1, {.top_k = 1});
  CHECK(tree.size() == 4);
  propose_drawn(tree, drafter, Iid{.widths = {3, 2, 1}}, 1, {.top_k = 1});
  CHECK(tree.size() == 1 + 3 + 6 + 6);
  propose_drawn(tree, drafter, Distinct{.widths = {3, 3}}, 1, {.top_k = 2});
  CHECK(tree.size() == 1 + 2 + 4);
}

TEST_CASE("it ends at the first width of 0, and with one branch it is a chain") {
  ScriptedDrafter drafter(30, random_rows(30, 6, 2));
  ProposalBuilder tree(30, 40, 40);
  const Distinct cut{.widths = {2, 0, 3}};
  CHECK(cut.nodes().most == 3);
  propose_drawn(tree, drafter, cut, 1);
  CHECK(tree.size() == 3);
  CHECK(drafter.widths.size() == 1);
  const Iid none{.widths = {}};
  CHECK(none.nodes().most == 1);
  propose_drawn(tree, drafter, none, 1);
  CHECK(tree.size() == 1);
  CHECK(drafter.widths.size() == 1);  // no draft call, so no sync()
  propose_drawn(tree, drafter, Distinct{.widths = {1, 1, 1}}, 1);
  CHECK(tree.is_chain());
  CHECK(tree.size() == 4);
  CHECK(tree.kind() == ProposalKind::sampled);
  CHECK(Distinct{}.nodes().most == 1 + 4 + 8 + 8);
}

static_assert(ProposalShape<Iid, ScriptedDrafter> && ProposalShape<Distinct, ScriptedDrafter>);
