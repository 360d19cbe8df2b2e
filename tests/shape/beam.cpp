// SPDX-License-Identifier: MIT
// Beam: beam search merged into a tree.
#include <specula/shape/beam.hpp>

#include <doctest/doctest.h>

#include <specula/shape/chain.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "proposed.hpp"

using namespace specula;
using namespace specula_test;

namespace {

struct Path {
  Text tokens;
  double prob = 1;
};

/// Beam search over whole paths and all tokens of the vocabulary, without trees or pools.
std::vector<Path> beam_search(const RowOf& row_of, std::int32_t width, std::int32_t length) {
  std::vector<Path> beams{{}};
  for (std::int32_t i = 0; i < length; ++i) {
    std::vector<Path> longer;
    for (const Path& beam : beams) {
      Text text = kText;
      text.insert(text.end(), beam.tokens.begin(), beam.tokens.end());
      for (const Top& top : ranked(row_of(text))) {
        Path next = beam;
        next.tokens.push_back(top.token);
        next.prob *= top.prob;
        const auto worse = std::upper_bound(longer.begin(), longer.end(), next.prob,
                                            [](double prob, const Path& path) { return prob > path.prob; });
        longer.insert(worse, std::move(next));
      }
    }
    if (longer.size() > static_cast<std::size_t>(width)) longer.resize(static_cast<std::size_t>(width));
    beams = std::move(longer);
  }
  return beams;
}

/// Every prefix of the paths, once.
std::set<Text> beginnings(const std::vector<Path>& paths) {
  std::set<Text> out;
  for (const Path& path : paths)
    for (std::size_t n = 1; n <= path.tokens.size(); ++n)
      out.insert(Text(path.tokens.begin(), path.tokens.begin() + static_cast<std::ptrdiff_t>(n)));
  return out;
}
std::vector<Text> nodes_of(const TokenTree& tree) {
  std::vector<Text> out;
  for (NodeId n = 1; n < tree.size(); ++n) {
    Text path;
    for (NodeId a = n; a != 0; a = tree.parent(a)) path.insert(path.begin(), tree.token(a));
    out.push_back(path);
  }
  return out;
}
double prob_of(const RowOf& row_of, const Text& path) {
  Text text = kText;
  double prob = 1;
  for (const Token x : path) {
    for (const Top& top : ranked(row_of(text)))
      if (top.token == x) prob *= top.prob;
    text.push_back(x);
  }
  return prob;
}

}  // namespace

TEST_CASE("the paths of a beam search, with common prefixes merged") {
  Random random(1);
  ProposalBuilder tree(12, 60, 0);
  Beam shape;
  int merged = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const RowOf rows = mixed_rows(12, i, random.between(0.5, 5), 0, i % 3 ? 0.0 : 0.6);
    ScriptedDrafter drafter(12, rows);
    shape.width = 1 + random.below(6);
    shape.length = random.below(6);
    propose(tree, drafter, shape);
    const std::set<Text> want = beginnings(beam_search(rows, shape.width, shape.length));
    const std::vector<Text> got = nodes_of(tree);
    CAPTURE(i);
    CHECK(std::set<Text>(got.begin(), got.end()) == want);
    CHECK(got.size() == want.size());
    CHECK(tree.size() <= shape.nodes().most);
    CHECK(drafter.widths.size() == static_cast<std::size_t>(shape.length));
    CHECK(std::accumulate(drafter.widths.begin(), drafter.widths.end(), 0) <= shape.nodes().drafted);
    CHECK(tree.kind() == ProposalKind::deterministic);
    for (NodeId n = 1; n < tree.size(); ++n) {
      Text parent = got[static_cast<std::size_t>(n) - 1];
      const double with_it = prob_of(rows, parent);
      parent.pop_back();
      CHECK(static_cast<double>(tree.confidence(n)) * prob_of(rows, parent) ==
            doctest::Approx(with_it).epsilon(1e-6));
    }
    merged += static_cast<std::int32_t>(want.size()) < shape.width * shape.length;
  }
  CHECK(merged > 100);
}

TEST_CASE("ties go to the older beam, then to the lower token") {
  ProposalBuilder tree(9, 60, 0);
  Beam shape;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const RowOf rows = flat_rows(9, i);
    ScriptedDrafter drafter(9, rows);
    shape.width = 1 + static_cast<std::int32_t>(i % 5), shape.length = 1 + static_cast<std::int32_t>(i % 4);
    propose(tree, drafter, shape);
    // The same as a pool: beams are kept in the order of the pool.
    std::vector<DraftToken> pool;
    std::vector<int> beams{-1};
    for (std::int32_t level = 0; level < shape.length; ++level) {
      std::vector<int> fresh;
      for (const int b : beams) {
        const std::vector<Top> row = ranked(rows(text_of(kText, pool, b)));
        const double reach = b < 0 ? 1.0 : pool[static_cast<std::size_t>(b)].reach;
        for (std::size_t k = 0; k < row.size() && static_cast<std::int32_t>(k) < shape.width; ++k) {
          fresh.push_back(static_cast<int>(pool.size()));
          pool.push_back({row[k].token, b, row[k].prob, reach * row[k].prob});
        }
      }
      beams = likeliest(pool, fresh, shape.width);
    }
    std::set<int> kept;
    for (int b : beams)
      for (; b >= 0; b = pool[static_cast<std::size_t>(b)].parent) kept.insert(b);
    CAPTURE(i);
    CHECK(holds(tree, pool, std::vector<int>(kept.begin(), kept.end())));
    for (const std::int32_t limit : {2, 4, 7}) {  // with less room, the likeliest of those
      propose(tree, drafter, shape, limit);
      CHECK(holds(tree, pool, likeliest(pool, std::vector<int>(kept.begin(), kept.end()), limit - 1)));
    }
  }
}

TEST_CASE("a beam of one is a greedy chain") {
  for (std::uint64_t i = 0; i < 20; ++i) {
    ScriptedDrafter drafter(12, random_rows(12, i, 3));
    ProposalBuilder beam(12, 6, 0), chain(12, 6, 0);
    Beam shape{.width = 1, .length = 5};
    propose(beam, drafter, shape);
    NoUniforms none;
    chain.reset(kRoot, 3);
    Chain<>{.length = 5}.propose(drafter, ProposeContext{kContext, {}, 6}, chain, none).run();
    CHECK(
        std::equal(beam.tokens().begin(), beam.tokens().end(), chain.tokens().begin(), chain.tokens().end()));
    CHECK(beam.is_chain());
    for (NodeId n = 0; n < 6; ++n) CHECK(beam.confidence(n) == chain.confidence(n));
  }
}

TEST_CASE("less room: the likeliest nodes with their ancestors") {
  const RowOf rows = random_rows(12, 7, 2);
  ScriptedDrafter drafter(12, rows);
  ProposalBuilder tree(12, 60, 0);
  Beam shape{.width = 4, .length = 4};
  CHECK(shape.nodes().most == 17);
  propose(tree, drafter, shape);
  std::vector<Text> all = nodes_of(tree);
  std::sort(all.begin(), all.end(), [&](const Text& a, const Text& b) {
    const double x = prob_of(rows, a), y = prob_of(rows, b);
    return x != y ? x > y : a < b;
  });
  for (std::int32_t limit = 1; limit <= tree.capacity() && limit <= 20; ++limit) {
    propose(tree, drafter, shape, limit);
    const std::vector<Text> got = nodes_of(tree);
    const std::size_t count = std::min(all.size(), static_cast<std::size_t>(limit) - 1);
    CHECK(std::set<Text>(got.begin(), got.end()) ==
          std::set<Text>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)));
  }
}

TEST_CASE("a drafter with an almost full KV cache: shorter beams; length 0: no draft tokens") {
  const RowOf rows = random_rows(12, 7, 2);
  for (std::int32_t room = 0; room <= 14; ++room) {
    ScriptedDrafter drafter(12, rows, static_cast<std::int32_t>(kContext.size()) + room);
    ProposalBuilder tree(12, 60, 0);
    Beam shape{.width = 3, .length = 4};
    REQUIRE_NOTHROW(propose(tree, drafter, shape));
    const std::int32_t levels = room < 1 ? 0 : std::min(4, 1 + (room - 1) / 3);
    const std::set<Text> want = beginnings(beam_search(rows, 3, levels));
    const std::vector<Text> got = nodes_of(tree);
    CHECK(std::set<Text>(got.begin(), got.end()) == want);
  }
  ScriptedDrafter drafter(12, rows);
  ProposalBuilder tree(12, 60, 0);
  Beam none{.length = 0};
  CHECK_NOTHROW(none.reserve());
  propose(tree, drafter, none);
  CHECK(none.nodes().most == 1);
  CHECK(tree.size() == 1);
  CHECK(drafter.widths.empty());
}

static_assert(ProposalShape<Beam, ScriptedDrafter> && Beam::kind == ProposalKind::deterministic);
