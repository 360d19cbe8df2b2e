#include <doctest/doctest.h>
#include <specula/token_tree.hpp>

#include <array>
#include <cmath>
#include <set>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Error = std::invalid_argument;

template <class T>
std::vector<std::int32_t> list(const T& ids) {
  return {ids.begin(), ids.end()};
}
std::vector<NodeId> children(const TokenTree& tree, NodeId node) {
  std::vector<NodeId> out;
  tree.children(node, [&](NodeId c) { return out.push_back(c), true; });
  return out;
}

/// Remembers every site it is asked at.
struct Recorder {
  PhiloxChance chance{5};
  std::vector<Site> sites;
  template <class Weights>
  Token draw(const Weights& weights, const Site& site) {
    return sites.push_back(site), chance.draw(weights, site);
  }
};

}  // namespace

TEST_CASE("growth: parents, depths, positions, siblings in the order of their drawing") {
  TokenTree tree(10, 8, 0);
  tree.reset(9, 100);
  CHECK(tree.size() == 1);
  CHECK(tree.token(0) == 9);
  CHECK(tree.parent(0) == kNoParent);
  CHECK(tree.position(0) == 100);
  CHECK(tree.first_child(0) == kNoParent);
  CHECK(tree.is_chain());
  CHECK(tree.choose(0, 3, 0.5f) == 1);
  CHECK(tree.choose(1, 4, 0.25f) == 2);
  CHECK(tree.is_chain());
  CHECK(tree.choose(0, 5, 1) == 3);
  CHECK(!tree.is_chain());
  CHECK(tree.choose(3, 6, 1) == 4);
  CHECK(tree.choose(0, 3, 1) == 5);
  CHECK(list(tree.tokens()) == std::vector<Token>{9, 3, 4, 5, 6, 3});
  CHECK(list(tree.parents()) == std::vector<NodeId>{-1, 0, 1, 0, 3, 0});
  CHECK(children(tree, 0) == std::vector<NodeId>{1, 3, 5});
  CHECK(children(tree, 3) == std::vector<NodeId>{4});
  CHECK(children(tree, 5).empty());
  CHECK(tree.depth(4) == 2);
  CHECK(tree.position(4) == 102);
  CHECK(tree.confidence(2) == 0.25f);
  CHECK(tree.room() == 2);
  CHECK(tree.capacity() == 8);
  int visits = 0;
  tree.children(0, [&](NodeId) { return ++visits < 2; });
  CHECK(visits == 2);

  tree.reset(1, 7);
  CHECK(tree.size() == 1);
  CHECK(tree.origin() == 7);
  CHECK(children(tree, 0).empty());
  CHECK(tree.is_chain());
  CHECK(tree.law() == DraftLaw::deterministic);
}

TEST_CASE("what the proposal holds is its law") {
  TokenTree tree(4, 10, 3);
  PhiloxChance chance(1);
  const std::vector<float> row = {0, 1, 2, 3};
  const auto begin = [&] { return tree.reset(0, 0), tree.store(0, row, {}); };
  RowLaw q = begin();
  CHECK(tree.law() == DraftLaw::deterministic);
  tree.choose(0, 1, 1);
  tree.choose(0, 2, 1);
  CHECK(tree.law() == DraftLaw::deterministic);

  q = begin();
  tree.draw(0, q, chance);
  CHECK(tree.law() == DraftLaw::sampled);
  tree.choose(1, 2, 1);  // still one path, each law recorded
  CHECK(tree.law() == DraftLaw::sampled);
  tree.draw(0, q, chance);
  CHECK(tree.law() == DraftLaw::mixed);

  q = begin();
  tree.draw(0, q, chance), tree.draw(0, q, chance);
  CHECK(tree.law() == DraftLaw::sampled_iid);
  tree.draw_distinct(0, q, chance);
  CHECK(tree.law() == DraftLaw::mixed);

  q = begin();
  tree.draw_distinct(0, q, chance);
  CHECK(tree.law() == DraftLaw::sampled);  // nothing was left out
  tree.draw_distinct(0, q, chance);
  CHECK(tree.law() == DraftLaw::sampled_distinct);

  q = begin();
  tree.draw(0, RowLaw::at(2), chance);  // a point mass draws nothing
  CHECK(tree.law() == DraftLaw::deterministic);
  CHECK(tree.token(1) == 2);
}

TEST_CASE("draft_prob is the law given the earlier siblings, of every kind of growth") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(2);
    double worst = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
      const std::int32_t vocab = i % 10 == 0 ? 1100 : 2 + random.below(8);
      const Case it = random_case(random, vocab, {}, {.nodes = 12, .wide = 0.6}, i);
      for (NodeId n = 1; n < it.tree.size(); ++n) {
        double sum = 0;
        for (Token x = 0; x < vocab; ++x) {
          const double q = it.tree.draft_prob(n, x),
                       want = it.dense.q[static_cast<std::size_t>(n)][static_cast<std::size_t>(x)];
          worst = std::max(worst, std::abs(q - want));
          sum += q;
        }
        worst = std::max(worst, std::abs(sum - 1));
        CHECK(it.tree.draft_prob(n, it.tree.token(n)) > 0);
      }
    }
    CHECK(worst < (isa == detail::Isa::reference ? 1e-10 : 1e-5));
  }
}

TEST_CASE("draw_distinct never repeats, and says when nothing is left") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(1300, 12, 1);
    PhiloxChance chance(3);
    std::vector<float> row(1300, -std::numeric_limits<float>::infinity());
    const std::set<Token> some = {3, 511, 512, 700, 1024, 1299};
    for (const Token x : some) row[static_cast<std::size_t>(x)] = static_cast<float>(x % 7);
    for (std::int32_t round = 0; round < 20; ++round) {
      tree.reset(0, round);
      const RowLaw q = tree.store(0, row, {});
      std::set<Token> seen;
      for (std::size_t i = 0; i < some.size(); ++i) {
        const NodeId n = tree.draw_distinct(0, q, chance);
        REQUIRE(n != kNoParent);
        seen.insert(tree.token(n));
        CHECK(tree.excludes_siblings(n));
      }
      CHECK(seen == some);
      CHECK(tree.draft_prob(6, tree.token(6)) == doctest::Approx(1).epsilon(1e-5));
      CHECK(tree.draw_distinct(0, q, chance) == kNoParent);
      CHECK(tree.size() == 7);
    }
    tree.reset(0, 0);
    CHECK(tree.draw_distinct(0, RowLaw::at(4), chance) == 1);
    CHECK(tree.draw_distinct(0, RowLaw::at(4), chance) == kNoParent);
    CHECK(tree.size() == 2);
  }
}

TEST_CASE("every coin of a round has a site of its own, and the next round has others") {
  TokenTree tree(5, 20, 20);
  Recorder chance;
  const std::vector<float> row = {0, 1, 2, 3, 4};
  std::vector<Site> sites;
  for (std::int32_t origin : {50, 51, 53}) {
    tree.reset(0, origin);
    for (NodeId n = 0; tree.size() < 12; ++n) {
      const RowLaw q = tree.store(n, row, {});
      tree.draw(n, q, chance), tree.draw(n, q, chance), tree.draw_distinct(n, q, chance);
    }
    for (NodeId n = 1; n < tree.size(); ++n) chance.sites.push_back(tree.accept_site(n));
    for (NodeId n = 0; n < tree.size(); ++n)
      if (tree.depth(n) != (n > 0 ? tree.depth(n - 1) : -1))
        chance.sites.push_back(tree.residual_site(n));  // one a depth
  }
  for (std::size_t i = 0; i < chance.sites.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) REQUIRE(!(chance.sites[i] == chance.sites[j]));
  CHECK(chance.sites[0] == Site{51, 50, Stream::draft, 0});
  CHECK(chance.sites[1] == Site{51, 50, Stream::draft, 1});
  CHECK(tree.accept_site(4) == Site{55, 53, Stream::accept, 4});
  CHECK(tree.sample_site(4) == Site{56, 0, Stream::sample, 0});
  CHECK(tree.residual_site(4) == Site{56, 53, Stream::residual, 0});
}

TEST_CASE("a limit below the capacity; large trees") {
  TokenTree tree(3, 100, 0);
  tree.reset(0, 0, 3);
  CHECK(tree.room() == 2);
  tree.choose(0, 1, 1), tree.choose(1, 1, 1);
  CHECK(tree.room() == 0);
  CHECK_THROWS_WITH_AS(tree.choose(0, 1, 1), "TokenTree: full, 3 nodes", Error);
  tree.reset(0, 0, 0);  // the root is always there
  CHECK(tree.size() == 1);
  CHECK(tree.room() == 0);
  tree.reset(0, 0, 1000);
  for (NodeId n = 0; n < 99; ++n) tree.choose(n, 1, 1);
  CHECK(tree.depth(99) == 99);
  CHECK(tree.is_chain());
  CHECK_THROWS_AS(tree.choose(0, 1, 1), Error);
}

TEST_CASE("narrow takes room away, never a node, and until the next reset") {
  TokenTree tree(3, 10, 0);
  tree.reset(0, 0, 8);
  tree.choose(0, 1, 1), tree.choose(1, 1, 1);
  tree.narrow(9);
  CHECK(tree.room() == 5);  // it adds none
  tree.narrow(5);
  CHECK(tree.room() == 2);
  tree.narrow(1);
  CHECK(tree.size() == 3);
  CHECK(tree.room() == 0);
  CHECK_THROWS_WITH_AS(tree.choose(0, 1, 1), "TokenTree: full, 3 nodes", Error);
  tree.reset(0, 0);
  CHECK(tree.room() == 9);
}

TEST_CASE("top_k: the best tokens of a row, and errors that name the node") {
  TokenTree tree(4, 3, 1);
  tree.reset(0, 0);
  const std::vector<float> row = {0, 2, 1, 2}, bad = {0, NAN, 0, 0};
  std::array<Top, 3> out;
  PhiloxChance chance(1);
  const RowLaw q = tree.store(0, row, {});
  REQUIRE(tree.top_k(0, row, out) == 3);
  CHECK(out[0].token == 1);
  CHECK(out[1].token == 3);
  CHECK(out[2].token == 2);
  CHECK(out[1].prob == out[0].prob);
  CHECK(out[2].prob == doctest::Approx(std::exp(1) / (1 + 2 * std::exp(2) + std::exp(1))).epsilon(1e-6));
  CHECK_THROWS_WITH_AS(tree.top_k(0, bad, out),
                       "the draft's row after node 0: a row of logits holds NaN or +infinity at token 1",
                       std::runtime_error);
  CHECK(tree.draw(0, q, chance) == 1);  // what was stored still is
}

TEST_CASE("errors") {
  CHECK_THROWS_WITH_AS(TokenTree(0, 4, 0), "TokenTree: a vocabulary of 0 tokens, must be at least 1", Error);
  CHECK_THROWS_AS(TokenTree(4, 0, 0), Error);
  CHECK_THROWS_AS(TokenTree(4, 1 << 24, 0), Error);
  CHECK_THROWS_AS(TokenTree(4, 2, 3), Error);
  CHECK_THROWS_AS(TokenTree(4, 2, -1), Error);
  TokenTree tree(4, 8, 1);
  tree.reset(0, 0);
  PhiloxChance chance(1);
  const std::vector<float> row = {0, 1, 2, 3}, wide(5);
  const RowLaw q = tree.store(0, row, {});
  CHECK_THROWS_WITH_AS(tree.choose(1, 0, 1), "TokenTree: node 1 of 1", Error);
  CHECK_THROWS_AS(tree.choose(-1, 0, 1), Error);
  CHECK_THROWS_WITH_AS(tree.choose(0, 4, 1), "TokenTree::choose: token 4 is outside the vocabulary of 4",
                       Error);
  CHECK_THROWS_AS(tree.choose(0, kNoToken, 1), Error);
  CHECK_THROWS_AS(tree.draw(3, q, chance), Error);
  CHECK_THROWS_AS(tree.draw_distinct(3, q, chance), Error);
  CHECK_THROWS_WITH_AS(tree.store(0, wide, {}),
                       "TokenTree::store: a row has 5 logits, the vocabulary 4 tokens", Error);
  CHECK_THROWS_AS(tree.store(2, row, {}), Error);
  tree.choose(0, 1, 1);
  CHECK_THROWS_WITH_AS(tree.store(1, row, {}), "TokenTree::store: node 1 has no row, 1 are kept", Error);
  const std::vector<float> bad = {0, NAN, 0, 0};
  CHECK_THROWS_AS(tree.store(0, bad, {}), std::runtime_error);
  CHECK_THROWS_AS(tree.top(0, bad), std::runtime_error);
  CHECK(tree.size() == 2);
}

TEST_CASE("store copies the row; top is what a greedy shape chooses") {
  TokenTree tree(4, 3, 1);
  tree.reset(0, 0);
  std::vector<float> row = {0, 2, 1, 2};
  const RowLaw q = tree.store(0, row, {.temperature = 0.5f});
  const double before = q(2);
  const auto top = tree.top(0, row);
  row.assign(4, 0.0f);
  CHECK(q(2) == before);
  CHECK(top.token == 1);
  CHECK(top.prob == doctest::Approx(std::exp(2) / (1 + 2 * std::exp(2) + std::exp(1))).epsilon(1e-6));
}

TEST_CASE("what a declared law covers") {
  using enum DraftLaw;
  static_assert(covers(sampled, sampled) && covers(sampled, deterministic) && covers(sampled_iid, sampled));
  static_assert(covers(mixed, sampled_distinct) && covers(sampled_distinct, deterministic));
  static_assert(covers(shared, shared) && covers(shared, deterministic) && !covers(shared, sampled) &&
                !covers(sampled, shared) && !covers(sampled_iid, shared) && !covers(mixed, shared) &&
                !covers(deterministic, shared));
  static_assert(!covers(deterministic, sampled) && !covers(sampled, sampled_iid) &&
                !covers(sampled_iid, mixed));
}

TEST_CASE("draw_shared: by the noise of the position, whatever the round; its law is shared") {
  TokenTree tree(4, 6, 3);
  PhiloxChance chance(1);
  const std::vector<float> row = {0, 1, 2, 3};
  std::set<Token> seen;
  for (std::int32_t position = 10; position < 60; ++position) {
    tree.reset(0, position);
    const RowLaw q = tree.store(0, row, {});
    CHECK(tree.draw_shared(0, q, chance) == 1);
    const Token token = tree.token(1);
    CHECK(tree.law() == DraftLaw::shared);
    CHECK(tree.row_law(1) == q);
    CHECK(tree.draft_prob(1, token) == q(token));
    CHECK(tree.confidence(1) == static_cast<float>(q(token)));
    CHECK(!tree.excludes_siblings(1));
    seen.insert(token);
    tree.choose(1, 2, 1);
    tree.draw(0, q, chance);
    CHECK(tree.law() == DraftLaw::shared);  // nothing that joins it takes the noise away

    tree.reset(0,
               position - 2);  // a round that begins earlier comes to the same position with the same noise
    tree.choose(0, 3, 1), tree.choose(1, 3, 1);
    tree.draw_shared(2, tree.store(2, row, {}), chance);
    CHECK(tree.token(3) == token);
    CHECK(tree.noise_site(2) == Site{position + 1, 0, Stream::noise, 0});
  }
  CHECK(seen.size() == 4);
  tree.reset(0, 0);
  tree.draw_shared(0, RowLaw::at(2), chance);  // a point mass draws nothing
  CHECK(tree.law() == DraftLaw::deterministic);
  CHECK(tree.token(1) == 2);
  CHECK_THROWS_AS(tree.draw_shared(5, RowLaw::at(2), chance), Error);
}
