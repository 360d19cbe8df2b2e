// SPDX-License-Identifier: MIT
// labels: optimised
// Block verification of chains, against a dense reference implementation.
#include <specula/accept/exact_rules.hpp>

#include <doctest/doctest.h>
#include <specula/proposal/proposal_builder.hpp>

#include "fixed_uniforms.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula_test;

namespace {

VerifyResult dense(const Case& it, DenseUniforms& uniforms) {
  return dense_block(it.dense, it.distributions, uniforms);
}

const std::vector<float>& operator+=(std::vector<float>& a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Draws a chain from the rows of `draft`, (length, V), by one uniform draw.
ProposalBuilder chain(const std::vector<float>& draft, std::int32_t vocab, double uniform) {
  const auto length = static_cast<std::int32_t>(draft.size()) / vocab;
  ProposalBuilder tree(vocab, length + 1, length + 1);
  tree.reset(0, 3);
  FixedUniforms uniforms{uniform};
  for (NodeId n = 0; n < length; ++n)
    tree.draw(n, tree.store(n, LogitsView{draft.data(), length, vocab, vocab}.row(n), {}), uniforms);
  return tree;
}

}  // namespace

TEST_CASE("same uniform draws, same verification result as the dense rule: chains of every growth") {
  compare(Block{}, dense, {1, 400, 2, 9, 8}, {.wide = 0});
  compare(Block{}, dense, {2, 200, 3, 9, 6}, {.chooses = false, .wide = 0});
  compare(Block{}, dense, {3, 60, 500, 1600, 6}, {.wide = 0, .spread = 9});
}

TEST_CASE("more than 64 nodes") {
  const ReferenceArithmetic reference;
  Random random(4);
  std::int32_t longest = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Case it =
        random_case(random, 6, {}, {.nodes = 150, .chooses = false, .wide = 0, .spread = 0.02}, i);
    DenseUniforms uniforms(i);
    const VerifyResult want = dense(it, uniforms), got = result_of(Block{}, it, {}, i);
    CHECK(it.tree.size() == 150);
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
    longest = std::max(longest, got.accepted_count());
  }
  CHECK(longest > 10);
}

TEST_CASE("block verification refuses a proposal that is not a chain") {
  ProposalBuilder tree(4, 3, 0);
  tree.reset(0, 0);
  tree.choose(0, 1, 1);
  tree.choose(0, 2, 1);
  PhiloxRandom rng(1);
  CHECK_THROWS_WITH_AS(run_rule(Block{}, tree, std::vector<float>(12), rng),
                       "Block: the proposal is no chain; Traversal takes trees", std::invalid_argument);
  CHECK_NOTHROW(run_rule(Traversal{}, tree, std::vector<float>(12), rng));
}

TEST_CASE("a uniform draw of 0 accepts neither a token of target probability 0 nor the tokens after it") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    const ProposalBuilder tree = chain({5, 0, 0, /**/ 0, 1, 0}, 3, 0.0);
    REQUIRE(tree.token(1) == 0);
    FixedUniforms zero{0.0};
    const VerifyResult result = run_rule(Block{}, tree, {-kInf, 1, 2, /**/ 0, 1, 0, /**/ 0, 0, 0}, zero);
    CHECK(result.accepted_count() == 0);
    CHECK(result.next_token == 1);  // the first token with mass left
  }
}

TEST_CASE("if q = p, all draft tokens are accepted, even at the largest uniform draw") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    for (int i = 0; i < 200; ++i) {
      const std::int32_t vocab = 1 + random.below(1200), length = 1 + random.below(4);
      std::vector<float> rows;
      for (std::int32_t n = 0; n < length; ++n) rows += mixed_row(random, vocab, i % 2 ? 1 : 12);
      const ProposalBuilder tree = chain(rows, vocab, random.uniform());
      rows += random.row(vocab, 1);
      FixedUniforms largest{kLargestUniform};
      CHECK(run_rule(Block{}, tree, rows, largest).accepted_count() == length);
    }
  }
}

TEST_CASE(
    "block verification may accept a token that token-level rejection rejects, because of the tokens after "
    "it") {
  // p / q is 1/2, then 2: the path as a whole is as likely as under the target.
  const float half = std::log(0.5f), quarter = std::log(0.25f), three = std::log(0.75f);
  const ProposalBuilder tree = chain({half, half, /**/ half, half}, 2, 0.0);
  REQUIRE(tree.token(1) == 0);
  REQUIRE(tree.token(2) == 0);
  const std::vector<float> rows = {quarter, three, /**/ 0, -kInf, /**/ 0, 0};
  FixedUniforms uniforms{0.7}, others{0.7};
  CHECK(run_rule(Block{}, tree, rows, uniforms).accepted_count() == 2);
  CHECK(run_rule(Rejection{}, tree, rows, others).accepted_count() == 0);
}

TEST_CASE("point masses against point masses") {
  ProposalBuilder tree(4, 3, 0);
  tree.reset(0, 0);
  tree.choose(0, 2, 1);
  tree.choose(1, 3, 1);
  const std::vector<float> rows = {0, 0, 1, 0, /**/ 1, 0, 0, 0, /**/ 0, 0, 0, 1};
  for (const double uniform : {0.0, 0.5, kLargestUniform}) {
    FixedUniforms fixed{uniform};
    const VerifyResult out = run_rule(Block{}, tree, rows, fixed, {.temperature = 0});
    CHECK(out.accepted == std::vector<NodeId>{0, 1});  // 2 is always accepted, 3 always rejected
    CHECK(out.next_token == 0);
  }
}

TEST_CASE("a proposal of the root alone, and a vocabulary of one token") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(5, 4, 0);
    tree.reset(2, 9);
    FixedUniforms uniforms{0.3};
    const VerifyResult out = run_rule(Block{}, tree, {0, 1, 2, 1, 0}, uniforms);
    CHECK(out.accepted == std::vector<NodeId>{0});
    CHECK(uniforms.accepts.empty());
    CHECK(uniforms.draws == std::vector<RandomKey>{{10, 0, RandomStream::sample, 0}});

    const ProposalBuilder one = chain({7, -3}, 1, 0.5);  // a vocabulary of one token
    FixedUniforms high{0.999};
    const VerifyResult all = run_rule(Block{}, one, {2, 3, 4}, high);
    CHECK(all.accepted == std::vector<NodeId>{0, 1, 2});
    CHECK(all.next_token == 0);
  }
}

TEST_CASE("a row after the end of the tested path is read once, and is an error if it is bad") {
  check_rows_read(Block{}, {.nodes = 8, .wide = 0}, [](const Case& it, const VerifyResult& result, NodeId n) {
    if (std::find(result.accepted.begin(), result.accepted.end(), n) != result.accepted.end()) return 1;
    return n == it.tree.size() - 1 ? 0 : 2;  // the last row is for the bonus token only
  });
}

TEST_CASE(
    "uniform draws: one per tested node from the end of the chain backwards, then one for the next token") {
  const ProposalBuilder tree = chain({0, 0, 0, /**/ 0, 0, 0}, 3, 0.0);
  FixedUniforms accepted{0.5};
  run_rule(Block{}, tree, std::vector<float>(9), accepted);
  CHECK(accepted.accepts == std::vector<RandomKey>{{5, 3, RandomStream::accept, 2}});
  CHECK(accepted.draws == std::vector<RandomKey>{{6, 0, RandomStream::sample, 0}});
  FixedUniforms rejected{0.9};
  run_rule(Block{}, tree, {-1, 0, 0, /**/ -1, 0, 0, /**/ 0, 0, 0}, rejected);
  REQUIRE(rejected.accepts.size() >= 2);
  CHECK(rejected.accepts.front() == RandomKey{5, 3, RandomStream::accept, 2});
  CHECK(rejected.accepts.back() == RandomKey{4, 3, RandomStream::accept, 1});
  CHECK(rejected.draws == std::vector<RandomKey>{{4, 3, RandomStream::residual, 0}});
}

static_assert(Block::lossless_for(ProposalKind::sampled) &&
              !Block::lossless_for(ProposalKind::deterministic) &&
              !Block::lossless_for(ProposalKind::sampled_iid) &&
              !Block::lossless_for(ProposalKind::sampled_distinct) &&
              !Block::lossless_for(ProposalKind::mixed) && !Block::lossless_for(ProposalKind::shared));
