// SPDX-License-Identifier: MIT
// ProposalBuilder: growth of proposals, recorded distributions, kinds, errors.
#include <specula/proposal/proposal_builder.hpp>
#include <specula/proposal/review.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <set>

#include "dense_rules.hpp"
#include "proposal_records.hpp"
#include "worst.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using Error = std::invalid_argument;

template <class T>
std::vector<std::int32_t> list(const T& ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace

TEST_CASE("growth: parents, depths, positions, siblings in the order of their draws") {
  ProposalBuilder tree(10, 8, 0);
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

TEST_CASE("the kind of a proposal follows from how its nodes were drawn") {
  ProposalBuilder tree(4, 10, 3);
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

TEST_CASE("draft_prob is conditioned on the earlier siblings, for every kind of growth") {
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
          worst = worse(worst, std::abs(q - want));
          sum += q;
        }
        worst = worse(worst, std::abs(sum - 1));
        CHECK(it.tree.draft_prob(n, it.tree.token(n)) > 0);
      }
    }
    CHECK(worst < (isa == Isa::reference ? 1e-10 : 1e-5));
  }
}

TEST_CASE("draw_distinct never repeats a token, and returns kNoParent when no mass is left") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(1300, 12, 1);
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
  ProposalBuilder tree(5, 20, 20);
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
        rng.keys.push_back(tree.residual_key(n));  // one per depth
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
  ProposalBuilder tree(3, 100, 0);
  tree.reset(0, 0, 3);
  CHECK(tree.room() == 2);
  tree.choose(0, 1, 1), tree.choose(1, 1, 1);
  CHECK(tree.room() == 0);
  CHECK_THROWS_WITH_AS(tree.choose(0, 1, 1), "ProposalBuilder: full, 3 nodes", Error);
  tree.reset(0, 0, 0);  // the root is always there
  CHECK(tree.size() == 1);
  CHECK(tree.room() == 0);
  tree.reset(0, 0, 1000);
  for (NodeId n = 0; n < 99; ++n) tree.choose(n, 1, 1);
  CHECK(tree.depth(99) == 99);
  CHECK(tree.is_chain());
  CHECK_THROWS_AS(tree.choose(0, 1, 1), Error);
}

TEST_CASE("narrow reduces the room until the next reset, and removes no node") {
  ProposalBuilder tree(3, 10, 0);
  tree.reset(0, 0, 8);
  tree.choose(0, 1, 1), tree.choose(1, 1, 1);
  tree.narrow(9);
  CHECK(tree.room() == 5);  // it adds none
  tree.narrow(5);
  CHECK(tree.room() == 2);
  tree.narrow(1);
  CHECK(tree.size() == 3);
  CHECK(tree.room() == 0);
  CHECK_THROWS_WITH_AS(tree.choose(0, 1, 1), "ProposalBuilder: full, 3 nodes", Error);
  tree.reset(0, 0);
  CHECK(tree.room() == 9);
}

TEST_CASE("top_k: the best tokens of a row, and errors that name the node") {
  ProposalBuilder tree(4, 3, 1);
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
  CHECK(tree.draw(0, q, rng) == 1);  // stored rows are kept
}

TEST_CASE("errors") {
  CHECK_THROWS_WITH_AS(ProposalBuilder(0, 4, 0),
                       "ProposalBuilder: the vocabulary is 0, must be in [1, 2147483647]", Error);
  CHECK_THROWS_WITH_AS(ProposalBuilder(4, 0, 0), "ProposalBuilder: max_nodes is 0, must be in [1, 16777215]",
                       Error);
  CHECK_THROWS_AS(ProposalBuilder(4, 1 << 24, 0), Error);
  CHECK_THROWS_WITH_AS(ProposalBuilder(4, 2, 3), "ProposalBuilder: stored_rows is 3, must be in [0, 2]",
                       Error);
  CHECK_THROWS_AS(ProposalBuilder(4, 2, -1), Error);
  ProposalBuilder tree(4, 8, 1);
  tree.reset(0, 0);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3}, wide(5);
  const Distribution q = tree.store(0, row, {});
  CHECK_THROWS_WITH_AS(tree.choose(1, 0, 1), "ProposalBuilder: node 1 of 1", Error);
  CHECK_THROWS_AS(tree.choose(-1, 0, 1), Error);
  CHECK_THROWS_WITH_AS(tree.choose(0, 4, 1), "ProposalBuilder: token 4 is outside the vocabulary of 4",
                       Error);
  CHECK_THROWS_AS(tree.choose(0, kNoToken, 1), Error);
  CHECK_THROWS_AS(tree.draw(3, q, rng), Error);
  CHECK_THROWS_AS(tree.draw_distinct(3, q, rng), Error);
  CHECK_THROWS_WITH_AS(tree.store(0, wide, {}),
                       "ProposalBuilder: the row after node 0 has 5 logits, the vocabulary 4 tokens", Error);
  CHECK_THROWS_WITH_AS(tree.top(0, wide),
                       "the draft's row after node 0: a row has 5 logits, the vocabulary 4 tokens", Error);
  CHECK_THROWS_AS(tree.store(2, row, {}), Error);
  tree.choose(0, 1, 1);
  CHECK_THROWS_WITH_AS(tree.store(1, row, {}), "ProposalBuilder: node 1 has no row, 1 are kept", Error);
  const std::vector<float> bad = {0, NAN, 0, 0};
  CHECK_THROWS_AS(tree.store(0, bad, {}), std::runtime_error);
  CHECK_THROWS_AS(tree.top(0, bad), std::runtime_error);
  CHECK(tree.size() == 2);
}

TEST_CASE("reset: positions where a proposal may begin, and errors") {
  ProposalBuilder tree(4, 8, 1);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3};
  const char* first = "ProposalBuilder: node 0 of 0; call reset() first";
  CHECK(tree.room() == 0);
  CHECK_THROWS_WITH_AS(tree.choose(0, 1, 1), first, Error);
  CHECK_THROWS_WITH_AS(tree.store(0, row, {}), first, Error);
  CHECK_THROWS_WITH_AS(tree.root(), first, Error);
  CHECK_THROWS_WITH_AS(review(tree, 0, row, {}, 1, rng), first, Error);
  tree.reset(3, 7);
  CHECK(tree.root() == 3);
  tree.choose(0, 1, 1);
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  CHECK_THROWS_WITH_AS(tree.reset(4, 0), "ProposalBuilder: the root 4 is outside the vocabulary of 4", Error);
  CHECK_THROWS_AS(tree.reset(kNoToken, 0), Error);
  CHECK_THROWS_WITH_AS(tree.reset(0, -1),
                       "ProposalBuilder::reset: position is -1, must be in [0, 2147483639]", Error);
  CHECK_THROWS_AS(tree.reset(0, most - 7, 1), Error);
  CHECK(tree.size() == 2);  // nothing has changed
  {
    const ProposalBuilder::ResetLock lock(tree);
    CHECK_THROWS_WITH_AS(
        tree.reset(0, 0),
        "ProposalBuilder::reset: a shape is proposing, and tokens that it has drawn must not be dropped",
        std::logic_error);
    CHECK(tree.choose(1, 1, 1) == 2);
  }
  tree.reset(0, most - 8);
  CHECK(tree.size() == 1);
  static_assert(!std::is_move_assignable_v<ProposalBuilder> &&
                !std::is_copy_constructible_v<ProposalBuilder>);
}

TEST_CASE("a tree can be moved") {
  ProposalBuilder tree(4, 4, 4);
  const std::vector<float> row = {0, 1, 2, 3};
  PhiloxRandom rng(1);
  tree.reset(0, 0);
  tree.draw(0, tree.store(0, row, {}), rng);
  ProposalBuilder other = std::move(tree);
  CHECK(other.size() == 2);
  CHECK(other.draft_prob(1, 3) == doctest::Approx(plain_distribution(row, {})[3]));
  other.reset(1, 0);
  CHECK(other.size() == 1);
}

TEST_CASE(
    "a row that a token was drawn from cannot be replaced, and a distribution whose row was replaced cannot "
    "be drawn from") {
  ProposalBuilder tree(4, 8, 3);
  PhiloxRandom rng(1);
  const std::vector<float> row = {0, 1, 2, 3}, other = {3, 2, 1, 0.5f}, bad = {0, NAN, 0, 0};
  tree.reset(0, 0);
  const Distribution before = tree.store(0, row, {});
  const Distribution distribution = tree.store(0, other, {});  // nothing was drawn yet
  const char* stale =
      "ProposalBuilder: a distribution for node 0 is over a row that store() has replaced, or its node is "
      "gone";
  CHECK_THROWS_WITH_AS(tree.draw(0, before, rng), stale, Error);
  CHECK_THROWS_WITH_AS(tree.draw_distinct(0, before, rng), stale, Error);
  CHECK_THROWS_WITH_AS(tree.draw_shared(0, before, rng), stale, Error);
  CHECK_THROWS_WITH_AS(tree.record(0, 1, before), stale, Error);
  CHECK(tree.draw(0, distribution, rng) == 1);
  const char* used = "ProposalBuilder: the row of node 0 cannot be replaced: node 1 was drawn from it";
  CHECK_THROWS_WITH_AS(tree.store(0, row, {}), used, Error);
  CHECK(tree.draft_distribution(1) == distribution);
  CHECK(tree.draft_prob(1, 0) == doctest::Approx(plain_distribution(other, {})[0]));
  tree.draw(0, tree.store(1, row, {}), rng);  // its own slot
  CHECK(tree.draft_prob(2, 3) == doctest::Approx(plain_distribution(row, {})[3]));
  CHECK_THROWS_WITH_AS(tree.store(1, row, {}),
                       "ProposalBuilder: the row of node 1 cannot be replaced: node 2 was drawn from it",
                       Error);
  CHECK_THROWS_AS(tree.store(2, bad, {}), std::runtime_error);
  CHECK_THROWS_AS(tree.draw(2, Distribution{.logits = distribution.logits.floats() + 8}, rng),
                  Error);  // no distribution was made of it

  tree.reset(0, 0);  // a chain whose second token was drawn from the first one's row
  const Distribution both = tree.store(0, row, {});
  tree.draw(0, both, rng), tree.draw(1, both, rng);
  CHECK_THROWS_WITH_AS(review(tree, 1, other, {}, 1, rng),
                       "ProposalBuilder: the row of node 0 cannot be replaced: node 2 was drawn from it",
                       Error);
}

TEST_CASE("distributions of nodes removed by a review or reset() cannot be drawn from") {
  ProposalBuilder tree(4, 8, 8);
  PhiloxRandom rng(1);
  constexpr float no = -std::numeric_limits<float>::infinity();
  const std::vector<float> row = {0, 1, 2, 3}, other = {no, no, no, 0}, zero = {0, no, no, no};
  tree.reset(0, 0);
  tree.draw(0, tree.store(0, zero, {}), rng);
  const Distribution removed = tree.store(1, row, {});
  CHECK_FALSE(review(tree, 1, other, {}, 1, rng));
  const char* stale =
      "ProposalBuilder: a distribution for node 0 is over a row that store() has replaced, or its node is "
      "gone";
  CHECK_THROWS_WITH_AS(tree.draw(0, removed, rng), stale, Error);
  const Distribution last = tree.store(1, row, {});
  tree.draw(0, last, rng);
  tree.reset(0, 0);
  CHECK_THROWS_WITH_AS(tree.draw(0, last, rng), stale, Error);
}

TEST_CASE("distributions that the tree did not make must have a row and add up to 1") {
  ProposalBuilder tree(4, 8, 1);
  PhiloxRandom rng(1);
  tree.reset(0, 0);
  const std::vector<float> logits = {0, 1, 2, 3}, nothing(4, -std::numeric_limits<float>::infinity());
  CHECK_THROWS_WITH_AS(tree.draw(0, Distribution{}, rng),
                       "ProposalBuilder: a distribution for node 0 has no row", Error);
  for (int again = 0; again < 2; ++again) {
    CHECK_THROWS_AS(tree.draw(0, Distribution{.logits = logits.data()}, rng), Error);
    CHECK_THROWS_AS(tree.draw(0, Distribution{.logits = nothing.data()}, rng), Error);
    CHECK_THROWS_AS(tree.draw_distinct(0, Distribution{.logits = logits.data()}, rng), Error);
    CHECK_THROWS_AS(tree.draw_shared(0, Distribution{.logits = logits.data()}, rng), Error);
    try {
      tree.record(0, 1, Distribution{.logits = logits.data()});
      FAIL("recorded");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("ProposalBuilder: the distribution after node 0 adds up to 31.19") ==
            0);
    }
  }
  const std::vector<float> bad = {0, NAN, 0, 0}, wide(5);
  CHECK_THROWS_WITH_AS(tree.distribution_after(0, bad, {}),
                       "the draft's row after node 0: a row of logits holds NaN or +infinity at token 1",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(tree.distribution_after(0, wide, {}),
                       "the draft's row after node 0: a row has 5 logits, the vocabulary 4 tokens", Error);
  CHECK_THROWS_WITH_AS(tree.distribution_after(1, logits, {}), "ProposalBuilder: node 1 of 1", Error);
  for (const SamplingParams& wrong : {SamplingParams{.temperature = -1}, SamplingParams{.top_k = -1},
                                      SamplingParams{.top_p = 0}, SamplingParams{.min_p = NAN}}) {
    CHECK_THROWS_AS(tree.distribution_after(0, logits, wrong), Error);
    CHECK_THROWS_AS(tree.store(0, logits, wrong), Error);
  }
  CHECK_THROWS_WITH_AS(tree.store(0, logits, {.top_p = 0}), "SamplingParams::top_p is 0, must be in (0, 1]",
                       Error);
  CHECK(tree.size() == 1);
}

TEST_CASE("record() of an engine's own draws equals the record of draw()") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(4, 8, 1);
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

TEST_CASE("record_distinct adds nothing if siblings left no mass, like draw_distinct()") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(3, 4, 1);
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
    } else {  // the reference arithmetic sums in double
      CHECK(std::isfinite(tree.draft_scale(drawn)));
    }
  }
}

TEST_CASE("record: errors name the node or the token, and add nothing") {
  ProposalBuilder tree(4, 4, 1);
  constexpr float no = -std::numeric_limits<float>::infinity();
  const std::vector<float> row = {0, 1, no, 3};
  tree.reset(0, 0);
  const Distribution distribution = tree.store(0, row, {});
  for (const auto record : {&ProposalBuilder::record, &ProposalBuilder::record_distinct}) {
    CHECK_THROWS_WITH_AS((tree.*record)(1, 0, distribution), "ProposalBuilder: node 1 of 1", Error);
    CHECK_THROWS_WITH_AS((tree.*record)(0, 4, distribution),
                         "ProposalBuilder: token 4 is outside the vocabulary of 4", Error);
    CHECK_THROWS_AS((tree.*record)(0, kNoToken, distribution), Error);
    CHECK_THROWS_WITH_AS(
        (tree.*record)(0, 2, distribution),
        (std::string("ProposalBuilder::record") + (record == &ProposalBuilder::record ? "" : "_distinct") +
         ": token 2 after node 0 has probability 0 under its distribution, which must be above 0")
            .c_str(),
        Error);
    CHECK_THROWS_AS((tree.*record)(0, 2, Distribution::at(1)), Error);
    CHECK_THROWS_WITH_AS((tree.*record)(0, 1, Distribution{}),
                         "ProposalBuilder: a distribution for node 0 has no row", Error);
  }
  CHECK(tree.size() == 1);
  CHECK(tree.record_distinct(0, 1, distribution) == 1);
  CHECK_THROWS_WITH_AS(tree.record_distinct(0, 1, distribution),
                       "ProposalBuilder::record_distinct: token 1 is a child of node 0 already", Error);
  CHECK(tree.record(1, 2, Distribution::at(2)) == 2);  // a point mass, like draw()
  CHECK(tree.record(0, 0, distribution) == 3);
  CHECK_THROWS_WITH_AS(tree.record(0, 1, distribution), "ProposalBuilder: full, 4 nodes", Error);
}

TEST_CASE("store copies the row; top is the token that a greedy shape chooses") {
  ProposalBuilder tree(4, 3, 1);
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

TEST_CASE(
    "draw_shared uses the noise of the position, independent of the round; the proposal's kind is shared") {
  ProposalBuilder tree(4, 6, 3);
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
    CHECK(tree.kind() == ProposalKind::shared);  // other nodes do not change the kind

    tree.reset(0,
               position - 2);  // a round that begins earlier uses the same noise at the same position
    tree.choose(0, 3, 1), tree.choose(1, 3, 1);
    tree.draw_shared(2, tree.store(2, row, {}), rng);
    CHECK(tree.token(3) == token);
    CHECK(tree.noise_key(2) == RandomKey{position + 1, 0, RandomStream::noise, 0});
    CHECK(tree.own_key(2, 3) == RandomKey{position, tree.origin(), RandomStream::own,
                                          static_cast<std::uint32_t>(3 * tree.capacity() + 2)});
    CHECK_THROWS_AS(tree.own_key(2, -1), std::invalid_argument);
    CHECK_THROWS_AS(tree.own_key(2, 1 << 24), std::invalid_argument);
  }
  CHECK(seen.size() == 4);
  tree.reset(0, 0);
  tree.draw_shared(0, Distribution::at(2), rng);  // a point mass draws nothing
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(tree.token(1) == 2);
  CHECK_THROWS_AS(tree.draw_shared(5, Distribution::at(2), rng), Error);
}

TEST_CASE("only a review distinguishes copied draft tokens from chosen ones") {
  ProposalBuilder tree(4, 4, 0);
  tree.reset(0, 5);
  CHECK(tree.copy(0, 3, 0.25f) == 1);
  CHECK(tree.copy(1, 2, 1) == 2);
  CHECK(tree.kind() == ProposalKind::deterministic);
  CHECK(tree.draft_distribution(1) == Distribution::at(3));
  CHECK(tree.confidence(1) == 0.25f);
  CHECK(tree.draft_prob(1, 3) == 1);
  CHECK_THROWS_WITH_AS(tree.copy(2, 4, 1), "ProposalBuilder: token 4 is outside the vocabulary of 4", Error);
  tree.copy(2, 0, 1);
  CHECK_THROWS_AS(tree.copy(3, 0, 1), Error);
}

TEST_CASE("nodes that were chosen may be left out; the others are renumbered, with their record") {
  using Flags = std::vector<std::uint8_t>;
  ProposalBuilder tree(9, 8, 0);
  tree.reset(0, 5);
  tree.choose(0, 1, 0.1f), tree.choose(0, 2, 0.2f), tree.choose(1, 3, 0.3f), tree.choose(2, 4, 0.4f);
  tree.copy(2, 5, 0.5f), tree.choose(4, 6, 0.6f);
  CHECK_THROWS_WITH_AS(tree.keep(Flags(3)), "ProposalBuilder::keep: 3 flags for 7 nodes", Error);
  CHECK_THROWS_WITH_AS(tree.keep(Flags{1, 0, 0, 0, 1, 0, 0}),
                       "ProposalBuilder::keep: node 4 without its parent", Error);
  CHECK(tree.size() == 7);
  tree.keep(Flags{0, 0, 1, 0, 1, 1, 1});  // without 1 and 3 below it
  REQUIRE(tree.size() == 5);
  const Tokens tokens = tree.tokens();
  const Nodes parents = tree.parents();
  CHECK(std::vector<Token>(tokens.begin(), tokens.end()) == std::vector<Token>{0, 2, 4, 5, 6});
  CHECK(std::vector<NodeId>(parents.begin(), parents.end()) == std::vector<NodeId>{kNoParent, 0, 1, 1, 2});
  CHECK(tree.first_child(0) == 1);
  CHECK(tree.next_sibling(1) == kNoParent);
  CHECK(tree.first_child(1) == 2);
  CHECK(tree.next_sibling(2) == 3);
  CHECK(tree.first_child(3) == kNoParent);
  CHECK(tree.depth(4) == 3);
  CHECK(tree.confidence(3) == 0.5f);
  CHECK(tree.draft_distribution(4) == Distribution::at(6));
  CHECK_FALSE(tree.is_chain());
  tree.keep(Flags{1, 1, 1, 0, 1});
  CHECK(tree.is_chain());
  CHECK(tree.choose(3, 7, 1) == 4);  // it grows on
  tree.keep(Flags(5));
  CHECK(tree.size() == 1);
  CHECK(tree.first_child(0) == kNoParent);
  CHECK(tree.room() == 7);
}
