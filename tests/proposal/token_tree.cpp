// labels: optimised
#include <specula/proposal/token_tree.hpp>

#include <doctest/doctest.h>

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

/// Remembers every key it is asked at.
struct Recorder {
  PhiloxRandom rng{5};
  std::vector<RandomKey> keys;
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    return keys.push_back(key), rng.draw(weights, key);
  }
  bool accept(double probability, const RandomKey& key) {
    return keys.push_back(key), rng.accept(probability, key);
  }
};

/// What a review may do, and what it must record.
enum class Outcome { stays, replaced };
struct Forced {
  Outcome outcome;
  double asked = -1;
  int draws = 0;
  bool accept(double probability, const RandomKey&) {
    asked = probability;
    return outcome == Outcome::stays;
  }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    ++draws;
    return PhiloxRandom(3).draw(weights, key);
  }
};

/// Remembers the masses of the tiles that it was given.
struct Masses {
  std::vector<double> of = {};
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey&) {
    of.assign(weights.tile_masses().begin(), weights.tile_masses().end());
    return 0;
  }
};

/// The distribution of a token drawn from q and reviewed by p with lenience l: the accepted mass, plus the
/// redrawn mass after a rejection.
Dense lenient_distribution(const Dense& q, const Dense& p, double l) {
  Dense out(q.size()), anew(q.size());
  for (std::size_t x = 0; x < q.size(); ++x) {
    out[x] = std::min(q[x], l * p[x]);
    anew[x] = std::max(0.0, p[x] - q[x] / l);
  }
  const double rejected = 1 - dense_sum(out), rest = dense_sum(anew);
  for (std::size_t x = 0; x < q.size(); ++x)
    if (rejected > 1e-9) out[x] += rejected * anew[x] / rest;
  return out;
}
double largest_difference(const TokenTree& tree, NodeId node, const Dense& distribution) {
  double worst = 0;
  for (std::size_t x = 0; x < distribution.size(); ++x)
    worst = std::max(worst, std::abs(tree.draft_prob(node, static_cast<Token>(x)) - distribution[x]));
  return worst;
}

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
  CHECK(tree.kind() == ProposalKind::deterministic);
}

TEST_CASE("what the proposal holds is its kind") {
  TokenTree tree(4, 10, 3);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3};
  const auto begin = [&] { return tree.reset(0, 0), tree.store(0, row, {}); };
  Distribution q = begin();
  CHECK(tree.kind() == ProposalKind::deterministic);
  tree.choose(0, 1, 1);
  tree.choose(0, 2, 1);
  CHECK(tree.kind() == ProposalKind::deterministic);

  q = begin();
  tree.draw(0, q, rng);
  CHECK(tree.kind() == ProposalKind::sampled);
  tree.choose(1, 2, 1);  // still one path, each distribution recorded
  CHECK(tree.kind() == ProposalKind::sampled);
  tree.draw(0, q, rng);
  CHECK(tree.kind() == ProposalKind::mixed);

  q = begin();
  tree.draw(0, q, rng), tree.draw(0, q, rng);
  CHECK(tree.kind() == ProposalKind::sampled_iid);
  tree.draw_distinct(0, q, rng);
  CHECK(tree.kind() == ProposalKind::mixed);

  q = begin();
  tree.draw_distinct(0, q, rng);
  CHECK(tree.kind() == ProposalKind::sampled);  // nothing was left out
  tree.draw_distinct(0, q, rng);
  CHECK(tree.kind() == ProposalKind::sampled_distinct);

  q = begin();
  tree.draw(0, Distribution::at(2), rng);  // a point mass draws nothing
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(tree.token(1) == 2);
}

TEST_CASE("draft_prob is the distribution given the earlier siblings, of every kind of growth") {
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
    CHECK(worst < (isa == Isa::reference ? 1e-10 : 1e-5));
  }
}

TEST_CASE("draw_distinct never repeats, and says when nothing is left") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(1300, 12, 1);
    PhiloxRandom rng(3);
    std::vector<float> row(1300, -std::numeric_limits<float>::infinity());
    const std::set<Token> some = {3, 511, 512, 700, 1024, 1299};
    for (const Token x : some) row[static_cast<std::size_t>(x)] = static_cast<float>(x % 7);
    for (std::int32_t round = 0; round < 20; ++round) {
      tree.reset(0, round);
      const Distribution q = tree.store(0, row, {});
      std::set<Token> seen;
      for (std::size_t i = 0; i < some.size(); ++i) {
        const NodeId n = tree.draw_distinct(0, q, rng);
        REQUIRE(n != kNoParent);
        seen.insert(tree.token(n));
        CHECK(tree.excludes_siblings(n));
      }
      CHECK(seen == some);
      CHECK(tree.draft_prob(6, tree.token(6)) == doctest::Approx(1).epsilon(1e-5));
      CHECK(tree.draw_distinct(0, q, rng) == kNoParent);
      CHECK(tree.size() == 7);
    }
    tree.reset(0, 0);
    CHECK(tree.draw_distinct(0, Distribution::at(4), rng) == 1);
    CHECK(tree.draw_distinct(0, Distribution::at(4), rng) == kNoParent);
    CHECK(tree.size() == 2);
  }
}

TEST_CASE("every uniform draw of a round has a key of its own, and the next round has others") {
  TokenTree tree(5, 20, 20);
  Recorder rng;
  const std::vector<float> row = {0, 1, 2, 3, 4};
  std::vector<RandomKey> keys;
  for (std::int32_t origin : {50, 51, 53}) {
    tree.reset(0, origin);
    for (NodeId n = 0; tree.size() < 12; ++n) {
      const Distribution q = tree.store(n, row, {});
      tree.draw(n, q, rng), tree.draw(n, q, rng), tree.draw_distinct(n, q, rng);
    }
    for (NodeId n = 1; n < tree.size(); ++n) rng.keys.push_back(tree.accept_key(n));
    for (NodeId n = 0; n < tree.size(); ++n)
      if (tree.depth(n) != (n > 0 ? tree.depth(n - 1) : -1))
        rng.keys.push_back(tree.residual_key(n));  // one a depth
  }
  for (std::size_t i = 0; i < rng.keys.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) REQUIRE(!(rng.keys[i] == rng.keys[j]));
  CHECK(rng.keys[0] == RandomKey{51, 50, RandomStream::draft, 0});
  CHECK(rng.keys[1] == RandomKey{51, 50, RandomStream::draft, 1});
  CHECK(tree.accept_key(4) == RandomKey{55, 53, RandomStream::accept, 4});
  CHECK(tree.sample_key(4) == RandomKey{56, 0, RandomStream::sample, 0});
  CHECK(tree.residual_key(4) == RandomKey{56, 53, RandomStream::residual, 0});
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
  PhiloxRandom rng(1);
  const Distribution q = tree.store(0, row, {});
  REQUIRE(tree.top_k(0, row, out) == 3);
  CHECK(out[0].token == 1);
  CHECK(out[1].token == 3);
  CHECK(out[2].token == 2);
  CHECK(out[1].prob == out[0].prob);
  CHECK(out[2].prob == doctest::Approx(std::exp(1) / (1 + 2 * std::exp(2) + std::exp(1))).epsilon(1e-6));
  CHECK_THROWS_WITH_AS(tree.top_k(0, bad, out),
                       "the draft's row after node 0: a row of logits holds NaN or +infinity at token 1",
                       std::runtime_error);
  CHECK(tree.draw(0, q, rng) == 1);  // what was stored still is
}

TEST_CASE("errors") {
  CHECK_THROWS_WITH_AS(TokenTree(0, 4, 0), "TokenTree: the vocabulary is 0, must be in [1, 2147483647]",
                       Error);
  CHECK_THROWS_WITH_AS(TokenTree(4, 0, 0), "TokenTree: max_nodes is 0, must be in [1, 16777215]", Error);
  CHECK_THROWS_AS(TokenTree(4, 1 << 24, 0), Error);
  CHECK_THROWS_WITH_AS(TokenTree(4, 2, 3), "TokenTree: stored_rows is 3, must be in [0, 2]", Error);
  CHECK_THROWS_AS(TokenTree(4, 2, -1), Error);
  TokenTree tree(4, 8, 1);
  tree.reset(0, 0);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3}, wide(5);
  const Distribution q = tree.store(0, row, {});
  CHECK_THROWS_WITH_AS(tree.choose(1, 0, 1), "TokenTree: node 1 of 1", Error);
  CHECK_THROWS_AS(tree.choose(-1, 0, 1), Error);
  CHECK_THROWS_WITH_AS(tree.choose(0, 4, 1), "TokenTree: token 4 is outside the vocabulary of 4", Error);
  CHECK_THROWS_AS(tree.choose(0, kNoToken, 1), Error);
  CHECK_THROWS_AS(tree.draw(3, q, rng), Error);
  CHECK_THROWS_AS(tree.draw_distinct(3, q, rng), Error);
  CHECK_THROWS_WITH_AS(tree.store(0, wide, {}),
                       "TokenTree: the row after node 0 has 5 logits, the vocabulary 4 tokens", Error);
  CHECK_THROWS_WITH_AS(tree.top(0, wide),
                       "the draft's row after node 0: a row has 5 logits, the vocabulary 4 tokens", Error);
  CHECK_THROWS_AS(tree.store(2, row, {}), Error);
  tree.choose(0, 1, 1);
  CHECK_THROWS_WITH_AS(tree.store(1, row, {}), "TokenTree: node 1 has no row, 1 are kept", Error);
  const std::vector<float> bad = {0, NAN, 0, 0};
  CHECK_THROWS_AS(tree.store(0, bad, {}), std::runtime_error);
  CHECK_THROWS_AS(tree.top(0, bad), std::runtime_error);
  CHECK(tree.size() == 2);
}

TEST_CASE("reset: where a proposal may begin, and where it may not") {
  TokenTree tree(4, 8, 1);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3};
  const char* first = "TokenTree: node 0 of 0; call reset() first";
  CHECK(tree.room() == 0);
  CHECK_THROWS_WITH_AS(tree.choose(0, 1, 1), first, Error);
  CHECK_THROWS_WITH_AS(tree.store(0, row, {}), first, Error);
  CHECK_THROWS_WITH_AS(tree.root(), first, Error);
  CHECK_THROWS_WITH_AS(tree.review(0, row, {}, 1, rng), first, Error);
  tree.reset(3, 7);
  CHECK(tree.root() == 3);
  tree.choose(0, 1, 1);
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  CHECK_THROWS_WITH_AS(tree.reset(4, 0), "TokenTree: the root 4 is outside the vocabulary of 4", Error);
  CHECK_THROWS_AS(tree.reset(kNoToken, 0), Error);
  CHECK_THROWS_WITH_AS(tree.reset(0, -1), "TokenTree::reset: position is -1, must be in [0, 2147483639]",
                       Error);
  CHECK_THROWS_AS(tree.reset(0, most - 7, 1), Error);
  CHECK(tree.size() == 2);  // nothing has changed
  {
    const TokenTree::ResetLock lock(tree);
    CHECK_THROWS_WITH_AS(
        tree.reset(0, 0),
        "TokenTree::reset: a shape is proposing, and tokens that it has drawn must not be dropped",
        std::logic_error);
    CHECK(tree.choose(1, 1, 1) == 2);
  }
  tree.reset(0, most - 8);
  CHECK(tree.size() == 1);
  static_assert(!std::is_move_assignable_v<TokenTree> && !std::is_copy_constructible_v<TokenTree>);
}

TEST_CASE("a tree that was moved from is empty, and does not begin again") {
  TokenTree tree(4, 4, 4);
  const std::vector<float> row = {0, 1, 2, 3};
  PhiloxRandom rng(1);
  tree.reset(0, 0);
  tree.draw(0, tree.store(0, row, {}), rng);
  TokenTree other = std::move(tree);
  CHECK(other.size() == 2);
  CHECK(other.draft_prob(1, 3) == doctest::Approx(plain_distribution(row, {})[3]));
  CHECK(tree.size() == 0);  // NOLINT(bugprone-use-after-move): that is what is tested
  CHECK_THROWS_WITH_AS(tree.reset(0, 0), "TokenTree: it was moved from", std::logic_error);
  CHECK_THROWS_WITH_AS(tree.top(0, row), "TokenTree: it was moved from", std::logic_error);
  std::vector<Top> best(1);
  CHECK_THROWS_WITH_AS(tree.top_k(0, row, best), "TokenTree: it was moved from", std::logic_error);
  CHECK_THROWS_AS(tree.store(0, row, {}), Error);
  CHECK_THROWS_AS(tree.choose(0, 1, 1), Error);
}

TEST_CASE(
    "a row that a token was drawn from is not replaced, and a distribution whose row was replaced draws "
    "nothing") {
  TokenTree tree(4, 8, 3);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3}, other = {3, 2, 1, 0.5f}, bad = {0, NAN, 0, 0};
  tree.reset(0, 0);
  const Distribution before = tree.store(0, row, {});
  const Distribution distribution = tree.store(0, other, {});  // nothing was drawn yet
  const char* stale =
      "TokenTree: a distribution for node 0 is over a row that store() has replaced, or its node is gone";
  CHECK_THROWS_WITH_AS(tree.draw(0, before, rng), stale, Error);
  CHECK_THROWS_WITH_AS(tree.draw_distinct(0, before, rng), stale, Error);
  CHECK_THROWS_WITH_AS(tree.draw_shared(0, before, rng), stale, Error);
  CHECK_THROWS_WITH_AS(tree.record(0, 1, before), stale, Error);
  CHECK(tree.draw(0, distribution, rng) == 1);
  const char* used = "TokenTree: the row of node 0 cannot be replaced: node 1 was drawn from it";
  CHECK_THROWS_WITH_AS(tree.store(0, row, {}), used, Error);
  CHECK(tree.draft_distribution(1) == distribution);
  CHECK(tree.draft_prob(1, 0) == doctest::Approx(plain_distribution(other, {})[0]));
  tree.draw(0, tree.store(1, row, {}), rng);  // a slot of its own
  CHECK(tree.draft_prob(2, 3) == doctest::Approx(plain_distribution(row, {})[3]));
  CHECK_THROWS_WITH_AS(tree.store(1, row, {}),
                       "TokenTree: the row of node 1 cannot be replaced: node 2 was drawn from it", Error);
  CHECK_THROWS_AS(tree.store(2, bad, {}), std::runtime_error);
  CHECK_THROWS_AS(tree.draw(2, Distribution{.logits = distribution.logits + 8}, rng),
                  Error);  // no distribution was made of it

  tree.reset(0, 0);  // a chain whose second token was drawn from the first one's row
  const Distribution both = tree.store(0, row, {});
  tree.draw(0, both, rng), tree.draw(1, both, rng);
  CHECK_THROWS_WITH_AS(tree.review(1, other, {}, 1, rng),
                       "TokenTree: the row of node 0 cannot be replaced: node 2 was drawn from it", Error);
}

TEST_CASE("what a review or reset() removed has no row to draw from") {
  TokenTree tree(4, 8, 8);
  PhiloxRandom rng(1);
  constexpr float no = -std::numeric_limits<float>::infinity();
  const std::vector<float> row = {0, 1, 2, 3}, other = {no, no, no, 0}, zero = {0, no, no, no};
  tree.reset(0, 0);
  tree.draw(0, tree.store(0, zero, {}), rng);
  const Distribution removed = tree.store(1, row, {});
  CHECK_FALSE(tree.review(1, other, {}, 1, rng));
  const char* stale =
      "TokenTree: a distribution for node 0 is over a row that store() has replaced, or its node is gone";
  CHECK_THROWS_WITH_AS(tree.draw(0, removed, rng), stale, Error);
  const Distribution last = tree.store(1, row, {});
  tree.draw(0, last, rng);
  tree.reset(0, 0);
  CHECK_THROWS_WITH_AS(tree.draw(0, last, rng), stale, Error);
}

TEST_CASE("distributions that are not of the tree's making: they have a row, and add up to 1") {
  TokenTree tree(4, 8, 1);
  PhiloxRandom rng(1);
  tree.reset(0, 0);
  const std::vector<float> logits = {0, 1, 2, 3}, nothing(4, -std::numeric_limits<float>::infinity());
  CHECK_THROWS_WITH_AS(tree.draw(0, Distribution{}, rng), "TokenTree: a distribution for node 0 has no row",
                       Error);
  for (int again = 0; again < 2; ++again) {
    CHECK_THROWS_AS(tree.draw(0, Distribution{.logits = logits.data()}, rng), Error);
    CHECK_THROWS_AS(tree.draw(0, Distribution{.logits = nothing.data()}, rng), Error);
    CHECK_THROWS_AS(tree.draw_distinct(0, Distribution{.logits = logits.data()}, rng), Error);
    CHECK_THROWS_AS(tree.draw_shared(0, Distribution{.logits = logits.data()}, rng), Error);
    try {
      tree.record(0, 1, Distribution{.logits = logits.data()});
      FAIL("recorded");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("TokenTree: the distribution after node 0 adds up to 31.19") == 0);
    }
  }
  const std::vector<float> bad = {0, NAN, 0, 0}, wide(5);
  CHECK_THROWS_WITH_AS(tree.distribution_after(0, bad, {}),
                       "the draft's row after node 0: a row of logits holds NaN or +infinity at token 1",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(tree.distribution_after(0, wide, {}),
                       "the draft's row after node 0: a row has 5 logits, the vocabulary 4 tokens", Error);
  CHECK_THROWS_WITH_AS(tree.distribution_after(1, logits, {}), "TokenTree: node 1 of 1", Error);
  for (const SamplingParams& wrong : {SamplingParams{.temperature = -1}, SamplingParams{.top_k = -1},
                                      SamplingParams{.top_p = 0}, SamplingParams{.min_p = NAN}}) {
    CHECK_THROWS_AS(tree.distribution_after(0, logits, wrong), Error);
    CHECK_THROWS_AS(tree.store(0, logits, wrong), Error);
  }
  CHECK_THROWS_WITH_AS(tree.store(0, logits, {.top_p = 0}), "SamplingParams::top_p is 0, must be in (0, 1]",
                       Error);
  CHECK(tree.size() == 1);
}

TEST_CASE("record: what an engine drew itself is what draw() would have recorded") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(4, 8, 1);
    const std::vector<float> row = {0, 1, 2, 3};
    const Dense q = plain_distribution(row, {.temperature = 0.5f});
    tree.reset(0, 0);
    const Distribution distribution =
        tree.distribution_after(0, row, {.temperature = 0.5f});  // copies nothing
    CHECK(distribution.logits == row.data());
    CHECK(tree.record(0, 3, distribution) == 1);
    CHECK(tree.kind() == ProposalKind::sampled);
    CHECK(tree.draft_distribution(1) == distribution);
    CHECK(tree.confidence(1) == doctest::Approx(q[3]));
    CHECK(tree.record(0, 3, distribution) == 2);  // with replacement
    CHECK(tree.kind() == ProposalKind::sampled_iid);
    CHECK(tree.record_distinct(0, 1, distribution) == 3);
    CHECK(tree.kind() == ProposalKind::mixed);
    CHECK(largest_difference(tree, 2, q) < 1e-6);
    CHECK(tree.draft_prob(3, 1) == doctest::Approx(q[1] / (1 - q[3])));

    std::vector<float> logs(4);
    for (std::size_t x = 0; x < 4; ++x) logs[x] = static_cast<float>(std::log(q[x]));
    tree.reset(0, 0);  // a row of log-probabilities is a distribution as it is
    CHECK(tree.record_distinct(0, 3, Distribution{.logits = logs.data()}) == 1);
    CHECK(tree.kind() == ProposalKind::sampled);
    CHECK(tree.record_distinct(0, 0, Distribution{.logits = logs.data()}) == 2);
    CHECK(tree.kind() == ProposalKind::sampled_distinct);
    CHECK(tree.draft_prob(2, 2) == doctest::Approx(q[2] / (1 - q[3])));
    CHECK(tree.draft_prob(2, 3) == 0);
    CHECK(tree.excludes_siblings(2));
    CHECK(tree.record(1, 3, tree.distribution_after(1, row, {.temperature = 0})) == 3);  // a point mass
  }
}

TEST_CASE("record_distinct: where siblings left no mass nothing is added, as draw_distinct() has it") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    TokenTree tree(3, 4, 1);
    const std::vector<float> row = {10, 0, -1};
    tree.reset(0, 0);
    const Distribution distribution = tree.distribution_after(0, row, {.temperature = 0.1f});
    REQUIRE(distribution(1) > 0);  // 3.7e-44, which no float sum holds
    CHECK(tree.record_distinct(0, 0, distribution) == 1);
    PhiloxRandom rng(1);
    const NodeId drawn = tree.draw_distinct(0, distribution, rng);
    if (drawn == kNoParent) {
      CHECK(tree.record_distinct(0, 1, distribution) == kNoParent);
      CHECK(tree.record_distinct(0, 2, distribution) == kNoParent);
      CHECK(tree.size() == 2);
    } else {  // the reference arithmetic adds up in double
      CHECK(std::isfinite(tree.draft_scale(drawn)));
    }
  }
}

TEST_CASE("record: errors name the node or the token, and add nothing") {
  TokenTree tree(4, 4, 1);
  constexpr float no = -std::numeric_limits<float>::infinity();
  const std::vector<float> row = {0, 1, no, 3};
  tree.reset(0, 0);
  const Distribution distribution = tree.store(0, row, {});
  for (const auto record : {&TokenTree::record, &TokenTree::record_distinct}) {
    CHECK_THROWS_WITH_AS((tree.*record)(1, 0, distribution), "TokenTree: node 1 of 1", Error);
    CHECK_THROWS_WITH_AS((tree.*record)(0, 4, distribution),
                         "TokenTree: token 4 is outside the vocabulary of 4", Error);
    CHECK_THROWS_AS((tree.*record)(0, kNoToken, distribution), Error);
    CHECK_THROWS_WITH_AS(
        (tree.*record)(0, 2, distribution),
        (std::string("TokenTree::record") + (record == &TokenTree::record ? "" : "_distinct") +
         ": token 2 after node 0 has probability 0 under its distribution, which must be above 0")
            .c_str(),
        Error);
    CHECK_THROWS_AS((tree.*record)(0, 2, Distribution::at(1)), Error);
    CHECK_THROWS_WITH_AS((tree.*record)(0, 1, Distribution{}),
                         "TokenTree: a distribution for node 0 has no row", Error);
  }
  CHECK(tree.size() == 1);
  CHECK(tree.record_distinct(0, 1, distribution) == 1);
  CHECK_THROWS_WITH_AS(tree.record_distinct(0, 1, distribution),
                       "TokenTree::record_distinct: token 1 is a child of node 0 already", Error);
  CHECK(tree.record(1, 2, Distribution::at(2)) == 2);  // a point mass, as draw() has it
  CHECK(tree.record(0, 0, distribution) == 3);
  CHECK_THROWS_WITH_AS(tree.record(0, 1, distribution), "TokenTree: full, 4 nodes", Error);
}

TEST_CASE("store copies the row; top is what a greedy shape chooses") {
  TokenTree tree(4, 3, 1);
  tree.reset(0, 0);
  std::vector<float> row = {0, 2, 1, 2};
  const Distribution q = tree.store(0, row, {.temperature = 0.5f});
  const double before = q(2);
  const auto top = tree.top(0, row);
  row.assign(4, 0.0f);
  CHECK(q(2) == before);
  CHECK(top.token == 1);
  CHECK(top.prob == doctest::Approx(std::exp(2) / (1 + 2 * std::exp(2) + std::exp(1))).epsilon(1e-6));
}

TEST_CASE("draw_shared: by the noise of the position, whatever the round; its distribution is shared") {
  TokenTree tree(4, 6, 3);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3};
  std::set<Token> seen;
  for (std::int32_t position = 10; position < 60; ++position) {
    tree.reset(0, position);
    const Distribution q = tree.store(0, row, {});
    CHECK(tree.draw_shared(0, q, rng) == 1);
    const Token token = tree.token(1);
    CHECK(tree.kind() == ProposalKind::shared);
    CHECK(tree.draft_distribution(1) == q);
    CHECK(tree.draft_prob(1, token) == q(token));
    CHECK(tree.confidence(1) == static_cast<float>(q(token)));
    CHECK(!tree.excludes_siblings(1));
    seen.insert(token);
    tree.choose(1, 2, 1);
    tree.draw(0, q, rng);
    CHECK(tree.kind() == ProposalKind::shared);  // nothing that joins it takes the noise away

    tree.reset(0,
               position - 2);  // a round that begins earlier comes to the same position with the same noise
    tree.choose(0, 3, 1), tree.choose(1, 3, 1);
    tree.draw_shared(2, tree.store(2, row, {}), rng);
    CHECK(tree.token(3) == token);
    CHECK(tree.noise_key(2) == RandomKey{position + 1, 0, RandomStream::noise, 0});
  }
  CHECK(seen.size() == 4);
  tree.reset(0, 0);
  tree.draw_shared(0, Distribution::at(2), rng);  // a point mass draws nothing
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(tree.token(1) == 2);
  CHECK_THROWS_AS(tree.draw_shared(5, Distribution::at(2), rng), Error);
}

TEST_CASE("copied draft tokens are chosen ones to all but a review") {
  TokenTree tree(4, 4, 0);
  tree.reset(0, 5);
  CHECK(tree.copy(0, 3, 0.25f) == 1);
  CHECK(tree.copy(1, 2, 1) == 2);
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(tree.draft_distribution(1) == Distribution::at(3));
  CHECK(tree.confidence(1) == 0.25f);
  CHECK(tree.draft_prob(1, 3) == 1);
  CHECK_THROWS_WITH_AS(tree.copy(2, 4, 1), "TokenTree: token 4 is outside the vocabulary of 4", Error);
  tree.copy(2, 0, 1);
  CHECK_THROWS_AS(tree.copy(3, 0, 1), Error);
}

TEST_CASE(
    "a review at temperature 0: the largest logit is accepted, else it replaces the node and all after it") {
  const SamplingParams greedy{.temperature = 0};
  const std::vector<float> row = {0, 3, 1, 2};
  const Dense p = plain_distribution(row, {});
  Recorder rng;
  TokenTree tree(4, 8, 0);
  const auto begin = [&](Token judged) {
    tree.reset(0, 5);
    tree.choose(0, 2, 0.5f), tree.choose(1, judged, 0.9f), tree.choose(2, 3, 0.9f), tree.choose(3, 0, 0.9f);
  };
  begin(1);
  CHECK(tree.review(2, row, greedy, 1, rng));
  CHECK(tree.size() == 5);
  CHECK(tree.token(2) == 1);
  CHECK(tree.confidence(2) == doctest::Approx(p[1]).epsilon(1e-5));  // the reviewer's
  CHECK(tree.confidence(1) == 0.5f);
  CHECK(tree.confidence(3) == 0.9f);

  begin(3);
  CHECK(!tree.review(2, row, greedy, 1, rng));
  REQUIRE(tree.size() == 3);
  CHECK(tree.room() == 5);
  CHECK(tree.token(2) == 1);
  CHECK(tree.confidence(2) == doctest::Approx(p[1]).epsilon(1e-5));
  CHECK(tree.draft_distribution(2) == Distribution::at(1));
  CHECK(tree.parent(2) == 1);
  CHECK(children(tree, 1) == std::vector<NodeId>{2});
  CHECK(children(tree, 2).empty());
  CHECK(tree.is_chain());
  CHECK(tree.depth(2) == 2);
  tree.choose(2, 0, 1);
  CHECK(children(tree, 2) == std::vector<NodeId>{3});
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(rng.keys.empty());  // no uniform draws

  const std::vector<float> tied = {1, 2, 2, 0};
  begin(1);
  CHECK(tree.review(2, tied, greedy, 1, rng));
  begin(2);
  CHECK(!tree.review(2, tied, greedy, 1, rng));  // the first of them is it
  CHECK(tree.token(2) == 1);
}

TEST_CASE("a review at temperature 0 with lenience goes by confidence, and forgives nothing copied") {
  const SamplingParams greedy{.temperature = 0};
  const std::vector<float> row = {0, 3, 1, 2};
  const double p = plain_distribution(row, {})[3];
  Recorder rng;
  TokenTree tree(4, 8, 0);
  const auto stays = [&](float confidence, double lenience, bool copied) {
    tree.reset(0, 5);
    copied ? tree.copy(0, 3, confidence) : tree.choose(0, 3, confidence);
    return tree.review(1, row, greedy, lenience, rng);
  };
  for (const double l : {1.5, 3.0}) {
    CHECK(stays(static_cast<float>(l * p * 0.99), l, false));
    CHECK(tree.token(1) == 3);
    CHECK(tree.confidence(1) == doctest::Approx(p).epsilon(1e-5));
    CHECK(!stays(static_cast<float>(l * p * 1.01), l, false));
    CHECK(!stays(static_cast<float>(l * p * 0.5), l, true));
    CHECK(tree.token(1) == 1);
  }
  CHECK(!stays(0.0f, 1, false));  // without lenience only the largest will do
  // What a reviewer took over is its own, and may be forgiven by the next.
  tree.reset(0, 5);
  tree.copy(0, 3, 0.01f);
  const std::vector<float> likes = {0, 0, 0, 1};
  CHECK(tree.review(1, likes, greedy, 3, rng));
  const float confidence = tree.confidence(1);
  CHECK(tree.review(1, row, greedy, static_cast<double>(confidence) / p * 1.01, rng));
  CHECK(tree.token(1) == 3);
}

TEST_CASE("a review records the distribution that the token now has, whatever became of it") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 4}, {.temperature = 1.4f, .top_p = 0.8f}};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(6);
    double worst = 0;
    int replaced = 0, nothing = 0;
    for (std::size_t i = 0; i < 300; ++i) {
      const std::int32_t vocab = i % 10 == 0 ? 1100 : 2 + random.below(8);
      const SamplingParams& params = settings[i % 3];
      const double l = i % 4 == 0 ? 1 : random.between(1, 6);
      const bool copied = i % 5 == 0;
      const std::vector<float> a = random.row(vocab, 2), b = random.row(vocab, 2), c = random.row(vocab, 2);
      const Dense p = plain_distribution(b, params);
      TokenTree tree(vocab, 5, 5);
      tree.reset(0, 9);
      PhiloxRandom uniforms(i);
      tree.draw(0, tree.store(0, a, params), uniforms);
      const Token fixed = static_cast<Token>(i) % vocab;
      if (copied)  // a point mass, chosen or copied: no lenience
        i % 2 ? tree.copy(1, fixed, 0.5f) : tree.choose(1, fixed, 0.5f);
      else
        tree.draw(1, tree.store(1, a, params), uniforms);
      tree.draw(2, tree.store(2, c, params), uniforms);
      Dense q = plain_distribution(a, params);
      const Token draft_token = tree.token(2);
      if (copied) std::fill(q.begin(), q.end(), 0.0), q[static_cast<std::size_t>(draft_token)] = 1;
      const double lenience = copied ? 1 : l;
      const Dense want = lenient_distribution(q, p, lenience);
      Forced rng{i % 2 ? Outcome::stays : Outcome::replaced};
      std::vector<float> shown = b;
      const bool stays = tree.review(2, shown, params, l, rng);
      std::fill(shown.begin(), shown.end(), 0.0f);                 // the drafter's next call
      if (i % 2 && stays) tree.review(3, a, params, l, uniforms);  // and the next review
      worst = std::max(worst, largest_difference(tree, 2, want));
      if (rng.asked >= 0)  // it was in doubt
        worst = std::max(worst, 0.1 * std::abs(rng.asked - want[static_cast<std::size_t>(draft_token)] /
                                                               q[static_cast<std::size_t>(draft_token)]));
      const Token now = tree.token(2);
      CHECK(tree.confidence(2) == doctest::Approx(tree.draft_prob(2, now)).epsilon(1e-5));
      CHECK(tree.size() == (stays ? 4 : 3));
      CHECK(rng.draws == (stays ? 0 : 1));
      if (stays) CHECK(now == draft_token);
      if (!stays) CHECK(want[static_cast<std::size_t>(now)] > q[static_cast<std::size_t>(now)]);
      if (rng.outcome == Outcome::stays) CHECK(stays);
      replaced += !stays, nothing += rng.asked < 0;
      worst = std::max(
          worst, largest_difference(tree, 1, plain_distribution(a, params)));  // the others are as they were
      if (stays && i % 2 == 0)
        worst = std::max(worst, largest_difference(tree, 3, plain_distribution(c, params)));
      CHECK(tree.kind() == ProposalKind::sampled);
    }
    CHECK(replaced > 80);
    CHECK(nothing > 5);
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("reviews behind each other: the distribution that one records is what the next one judges") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(7);
    double worst = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::int32_t vocab = i % 10 == 0 ? 700 : 3 + random.below(6);
      const std::vector<float> a = random.row(vocab, 2), b = random.row(vocab, 2), c = random.row(vocab, 2);
      TokenTree tree(vocab, 3, 3);
      tree.reset(0, 9);
      PhiloxRandom rng(i);
      tree.draw(0, tree.store(0, a, {}), rng);
      tree.review(1, b, {}, 2, rng);
      tree.review(1, c, {}, 3, rng);
      const Dense once = lenient_distribution(plain_distribution(a, {}), plain_distribution(b, {}), 2);
      worst = std::max(worst,
                       largest_difference(tree, 1, lenient_distribution(once, plain_distribution(c, {}), 3)));
    }
    CHECK(worst < 2e-5);
  }
}

TEST_CASE("a review and a draw give the counts of q_eff: n 20,000") {
  const std::vector<float> a = {0, 1, 2, -1, 0.5f}, b = {1.5f, 1, -1, 0, 0};
  for (const double lenience : {1.0, 2.0}) {
    const Dense want = lenient_distribution(plain_distribution(a, {}), plain_distribution(b, {}), lenience);
    std::vector<int> counts(5);
    TokenTree tree(5, 2, 2);
    for (std::int32_t i = 0; i < 20000; ++i) {
      tree.reset(0, i);
      PhiloxRandom rng(8);
      tree.draw(0, tree.store(0, a, {}), rng);
      tree.review(1, b, {}, lenience, rng);
      ++counts[static_cast<std::size_t>(tree.token(1))];
    }
    for (std::size_t x = 0; x < 5; ++x)
      CHECK(std::abs(counts[x] - 20000 * want[x]) < 4.5 * std::sqrt(20000 * want[x] * (1 - want[x])));
  }
}

TEST_CASE("what a proposal holds after reviews is its kind") {
  const std::vector<float> row = {0, 5, 0, 0}, other = {5, 0, 0, 0};
  TokenTree tree(4, 8, 8);
  Forced keep{Outcome::stays}, change{Outcome::replaced};
  tree.reset(0, 0);
  tree.copy(0, 2, 1), tree.copy(1, 2, 1), tree.choose(2, 2, 1);
  CHECK(tree.kind() == ProposalKind::deterministic);
  tree.review(1, row, {}, 1, keep);
  CHECK(tree.kind() == ProposalKind::sampled);
  tree.review(2, row, {}, 1, change);
  CHECK(tree.size() == 3);
  CHECK(tree.kind() == ProposalKind::sampled);

  tree.reset(0, 0);
  PhiloxRandom rng(1);
  tree.choose(0, 2, 1);
  tree.draw(1, tree.store(1, row, {}), rng), tree.draw(2, tree.store(2, row, {}), rng);
  CHECK(tree.kind() == ProposalKind::sampled);
  tree.review(1, other, {.temperature = 0}, 1, rng);  // cuts both draws off
  CHECK(tree.size() == 2);
  CHECK(tree.kind() == ProposalKind::deterministic);

  tree.reset(0, 0);
  tree.draw(0, tree.store(0, row, {}), rng);
  tree.review(1, other, {}, 1, change);  // what was cut off is no sibling of what comes
  tree.draw(0, tree.draft_distribution(1), rng);
  CHECK(tree.kind() == ProposalKind::sampled_iid);

  tree.reset(0, 0);  // counts begin anew
  tree.choose(0, 1, 1), tree.choose(0, 2, 1);
  CHECK(tree.kind() == ProposalKind::deterministic);
  tree.draw(1, tree.store(1, row, {}), rng);
  CHECK(tree.kind() == ProposalKind::mixed);
}

TEST_CASE("a slot that a review overwrote: draws from its new distribution have the right masses") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    constexpr std::int32_t kWide = 1100;
    Random random(9);
    const std::vector<float> a = random.row(kWide, 2), b = random.row(kWide, 2);
    for (const double lenience : {1.0, 2.0}) {
      const Dense want = lenient_distribution(plain_distribution(a, {}), plain_distribution(b, {}), lenience);
      TokenTree tree(kWide, 4, 4);
      tree.reset(0, 9);
      PhiloxRandom rng(1);
      tree.draw(0, tree.store(0, a, {}), rng);  // the scan remembers slot 0
      Forced keep{Outcome::stays};
      tree.review(1, b, {}, lenience, keep);
      Masses masses;
      tree.draw(0, tree.draft_distribution(1), masses);
      REQUIRE(masses.of.size() == 3);
      for (std::size_t t = 0; t < 3; ++t) {
        double mass = 0;
        for (std::size_t x = t * 512; x < std::min<std::size_t>(want.size(), (t + 1) * 512); ++x)
          mass += want[x];
        CHECK(masses.of[t] == doctest::Approx(mass).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("uniform draws of reviews never come twice in a round") {
  Random random(10);
  Recorder rng;
  int accepts = 0, residuals = 0;
  for (std::int32_t round = 0; round < 30; ++round) {
    const std::size_t from = rng.keys.size();
    TokenTree tree(5, 12, 12);
    tree.reset(0, 100 + round);
    for (int turn = 0; turn < 4; ++turn) {
      const NodeId base = tree.size() - 1;
      for (int i = 0; i < 3 && tree.room() > 0; ++i) {
        const NodeId at = tree.size() - 1;
        tree.draw(at, tree.store(at, random.row(5, 2), {}), rng);
      }
      for (NodeId n = base + 1; n < tree.size(); ++n)
        if (!tree.review(n, random.row(5, 2), {}, 1 + turn % 2, rng)) break;
      for (NodeId n = 1; n < tree.size(); ++n)  // and by somebody above
        if (turn == 2 && !tree.review(n, random.row(5, 2), {}, 1, rng)) break;
    }
    for (std::size_t i = from; i < rng.keys.size(); ++i) {
      const RandomKey& key = rng.keys[i];
      CHECK(key.origin == 100 + round);
      accepts += key.stream == RandomStream::review_accept;
      residuals += key.stream == RandomStream::review_residual;
      for (std::size_t j = from; j < i; ++j) REQUIRE(key.index != rng.keys[j].index);
    }
  }
  CHECK(accepts > 100);
  CHECK(residuals > 50);

  TokenTree tree(5, 3, 3);
  Recorder one;
  tree.reset(0, 50);
  tree.copy(0, 1, 1);
  tree.copy(1, 1, 1);
  tree.review(2, std::vector<float>{9, 0, 0, 0, 0}, {}, 1, one);
  REQUIRE(one.keys.size() == 2);
  CHECK(one.keys[0] == RandomKey{52, 50, RandomStream::review_accept, 0});
  CHECK(one.keys[1] == RandomKey{52, 50, RandomStream::review_residual, 1});
}

TEST_CASE("errors of a review change nothing") {
  TokenTree tree(4, 8, 2);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3}, wide(5), bad = {0, NAN, 0, 0};
  const auto begin = [&] {
    tree.reset(0, 0);
    tree.draw(0, tree.store(0, row, {}), rng), tree.choose(1, 1, 1), tree.choose(2, 1, 1);
  };
  begin();
  CHECK_THROWS_WITH_AS(tree.review(0, row, {}, 1, rng),
                       "TokenTree::review: node 0 is the root, or the tree is no chain", Error);
  CHECK_THROWS_AS(tree.review(4, row, {}, 1, rng), Error);
  CHECK_THROWS_AS(tree.review(-1, row, {}, 1, rng), Error);
  CHECK_THROWS_WITH_AS(tree.review(1, row, {}, 0.5, rng),
                       "TokenTree::review: lenience is 0.5, must be in [1, 1e+30]", Error);
  CHECK_THROWS_AS(tree.review(1, row, {}, std::numeric_limits<double>::infinity(), rng), Error);
  CHECK_THROWS_WITH_AS(tree.review(1, row, {.min_p = 2}, 1, rng),
                       "SamplingParams::min_p is 2, must be in [0, 1]", Error);
  CHECK_THROWS_AS(tree.review(1, row, {}, std::nan(""), rng), Error);
  CHECK_THROWS_AS(tree.review(1, wide, {}, 1, rng), Error);
  CHECK_THROWS_AS(tree.review(1, wide, {.temperature = 0}, 1, rng), Error);
  CHECK_THROWS_WITH_AS(tree.review(3, row, {}, 1, rng), "TokenTree: node 2 has no row, 2 are kept", Error);
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 0}})
    for (const double lenience : {1.0, 2.0})
      CHECK_THROWS_WITH_AS(tree.review(2, bad, params, lenience, rng),
                           "the draft's row after node 1: a row of logits holds NaN or +infinity at token 1",
                           std::runtime_error);
  CHECK(tree.size() == 4);
  CHECK(tree.kind() == ProposalKind::sampled);
  CHECK(largest_difference(tree, 1, plain_distribution(row, {})) < 1e-5);
  CHECK(tree.token(2) == 1);
  CHECK(tree.draft_distribution(2) == Distribution::at(1));
  CHECK(tree.review(3, {row}, {.temperature = 0}, 1, rng) == false);  // needs no slot

  tree.reset(0, 0);
  tree.choose(0, 1, 1), tree.choose(0, 2, 1);
  CHECK_THROWS_AS(tree.review(2, row, {.temperature = 0}, 1, rng), Error);
  CHECK_THROWS_AS(tree.review(1, row, {.temperature = 0}, 1, rng), Error);
  tree.reset(0, 0);
  tree.draw_shared(0, tree.store(0, row, {}), rng);
  CHECK_THROWS_WITH_AS(tree.review(1, row, {}, 1, rng),
                       "TokenTree::review: the proposal was drawn with the target's own noise", Error);
  tree.reset(0, 0);
  tree.draw(0, tree.store(0, row, {}), rng);
  CHECK_THROWS_WITH_AS(
      tree.review(1, row, {.temperature = 0}, 1, rng),
      "TokenTree::review: node 1 was drawn; a review at temperature 0 requires a chosen node", Error);
}

TEST_CASE("a full tree can be reviewed") {
  TokenTree tree(4, 8, 8);
  const std::vector<float> row = {0, 1, 2, 3};
  Forced change{Outcome::replaced};
  tree.reset(0, 0, 3);
  tree.copy(0, 0, 1), tree.copy(1, 0, 1);
  CHECK(tree.room() == 0);
  CHECK(!tree.review(2, row, {}, 1, change));
  CHECK(tree.size() == 3);
  CHECK(!tree.review(1, row, {.temperature = 0}, 1, change));
  CHECK(tree.size() == 2);
  CHECK(tree.room() == 1);
}
