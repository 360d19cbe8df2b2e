// SPDX-License-Identifier: MIT
// labels: optimised
// The k-SEQ rule (SpecTr), against a dense reference implementation.
#include <specula/accept/k_seq.hpp>

#include <doctest/doctest.h>
#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include "exact_distribution.hpp"
#include "fixed_uniforms.hpp"
#include "structured_rows.hpp"
#include "tree_shapes.hpp"

using namespace specula;
using namespace specula_test;

namespace {

using IidTriple = Bush<ProposalKind::sampled_iid, Child::drawn, Child::drawn, Child::drawn>;

/// Deterministic proposals and chains are verified as by rejection.
VerifyResult dense(const Case& it, DenseUniforms& uniforms) {
  return it.tree.kind() == ProposalKind::deterministic ? dense_rejection(it.dense, it.distributions, uniforms)
                                                       : dense_k_seq(it.dense, it.distributions, uniforms);
}

/// `count` draft tokens drawn from `q` under the root by one uniform draw.
struct DraftTokens {
  std::vector<float> p, q;
  std::int32_t count = 2;
  ProposalBuilder tree{static_cast<std::int32_t>(p.size()), count + 1, 1};

  template <class Rng>
  VerifyResult verify(Rng& rng, const SamplingParams& params = {}) {
    std::vector<float> rows;
    for (std::int32_t n = 0; n <= count; ++n) rows.insert(rows.end(), p.begin(), p.end());
    return run_rule(KSeq{}, tree, rows, rng, params);
  }
  Token draw(double uniform) {
    FixedUniforms fixed{uniform};
    tree.reset(0, 3);
    const Distribution distribution = tree.store(0, q, {});
    for (std::int32_t n = 0; n < count; ++n) tree.draw(0, distribution, fixed);
    return tree.token(1);
  }
};

/// The exact distribution of the text against the target's, over several models.
template <class Shape>
double worst(std::int32_t vocab, Shape shape, std::size_t horizon, std::uint64_t seeds = 3) {
  double error = 0;
  const std::vector<Token> prompt = {0, vocab - 1, 0, 1, 0};
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 0.8f, .top_k = 2}}) {
      ToyModel target(vocab, 10 * seed), draft(vocab, 10 * seed + 1);
      Speculator run{TreeVerifier{target, KSeq{}, params}, ModelDrafter{draft}, shape};
      error = std::max(error, composed_distribution(run, target, params, prompt, horizon).error);
    }
  return error;
}

}  // namespace

TEST_CASE(
    "k-SEQ keeps the target's distribution: pairs and triples of independent draft tokens, one and two "
    "levels") {
  CHECK(worst(2, IidPair{}, 3) < 1e-12);
  CHECK(worst(3, IidPair{}, 3) < 1e-12);
  CHECK(worst(4, IidPair{}, 2) < 1e-12);
  CHECK(worst(2, IidTriple{}, 3) < 1e-12);
  CHECK(worst(3, IidTriple{}, 2) < 1e-12);
  CHECK(worst(4, IidTriple{}, 1) < 1e-12);
  CHECK(worst(2, IidPair{.depth = 2}, 3, 2) < 1e-12);
  CHECK(worst(3, IidPair{.depth = 2}, 2, 1) < 1e-12);
  CHECK(worst(3, Bush<ProposalKind::sampled_iid, Child::drawn>{.depth = 3}, 3) < 1e-12);  // a chain
}

TEST_CASE("a whole pipeline over several rounds") {
  ToyModel target(2, 1), draft(2, 2);
  Speculator run{TreeVerifier{target, KSeq{}}, ModelDrafter{draft}, IidPair{.depth = 2}};
  CHECK(whole_distribution(run, target, {}, {0, 1, 0}, 2).error < 1e-12);
}

TEST_CASE(
    "same uniform draws, same verification result as the dense rule: independent siblings, chains, chosen "
    "trees") {
  compare(KSeq{}, dense, {1, 400, 2, 9, 20, 0.8}, {.distinct = false, .chooses = false, .wide = 0.6});
  compare(KSeq{}, dense, {2, 60, 500, 1600, 10, 0.65},
          {.distinct = false, .chooses = false, .wide = 0.5, .spread = 9});
  compare(KSeq{}, dense, {3, 200, 2, 9, 20}, {.draws = false, .distinct = false, .wide = 0.4});
  compare(KSeq{}, dense, {4, 200, 2, 9, 8}, {.wide = 0});
}

TEST_CASE("more than 32 siblings and more than 64 nodes") {
  const ReferenceArithmetic reference;
  Random random(6);
  int compared = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Case it = random_case(
        random, 50, {}, {.nodes = 100, .distinct = false, .chooses = false, .wide = 0.97, .spread = 1}, i);
    std::size_t siblings = 0;
    for (NodeId n = 0; n < it.tree.size(); ++n) siblings = std::max(siblings, it.dense.children(n).size());
    CHECK(it.tree.size() == 100);
    DenseUniforms uniforms(i);
    const VerifyResult want = dense(it, uniforms), got = result_of(KSeq{}, it, {}, i);
    if (uniforms.margin < 1e-11)
      continue;  // with p near q and many siblings, the result hardly depends on rho
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
    ++compared;
  }
  CHECK(compared > 20);
  DraftTokens many{{-kInf, 3, 0}, {4, 0, 1}, 40};
  REQUIRE(many.draw(0.5) == 0);
  FixedUniforms zero{0.0};
  CHECK(many.verify(zero).accepted_count() == 0);
  CHECK(zero.accepts.size() == 40);
}

TEST_CASE("k-SEQ refuses siblings drawn in other ways; one path has none") {
  const std::vector<float> row = {0, 1, 2};
  PhiloxRandom rng(1);
  const auto tree_of = [&](auto grow) {
    ProposalBuilder tree(3, 3, 1);
    tree.reset(0, 0);
    grow(tree, tree.store(0, row, {}));
    return tree;
  };
  const char* message =
      "KSeq: siblings must be drawn independently from one distribution, or be chosen; Rejection and "
      "Traversal take "
      "any";
  const auto distinct = tree_of([&](ProposalBuilder& tree, const Distribution& q) {
    tree.draw_distinct(0, q, rng), tree.draw_distinct(0, q, rng);
  });
  const auto mixed = tree_of(
      [&](ProposalBuilder& tree, const Distribution& q) { tree.draw(0, q, rng), tree.choose(0, 1, 1); });
  const auto chain = tree_of([&](ProposalBuilder& tree, const Distribution& q) {
    tree.draw_distinct(0, q, rng), tree.choose(1, 1, 1);
  });
  const std::vector<float> rows(9);
  CHECK_THROWS_WITH_AS(run_rule(KSeq{}, distinct, rows, rng), message, std::invalid_argument);
  CHECK_THROWS_WITH_AS(run_rule(KSeq{}, mixed, rows, rng), message, std::invalid_argument);
  for (const ProposalBuilder* tree : {&distinct, &mixed}) {
    CHECK_NOTHROW(run_rule(Rejection{}, *tree, rows, rng));
    CHECK_NOTHROW(run_rule(Traversal{}, *tree, rows, rng));
  }
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PhiloxRandom ours(seed), theirs(seed);
    const VerifyResult a = run_rule(KSeq{}, chain, rows, ours),
                       b = run_rule(Rejection{}, chain, rows, theirs);
    CHECK(a.accepted == b.accepted);
    CHECK(a.next_token == b.next_token);
  }
}

TEST_CASE("a uniform draw of 0 does not accept a token of target probability 0") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    DraftTokens draft_tokens{{-kInf, 1, 2}, {5, 0, 0}};
    REQUIRE(draft_tokens.draw(0.0) == 0);
    FixedUniforms zero{0.0};
    const VerifyResult result = draft_tokens.verify(zero);
    CHECK(result.accepted_count() == 0);
    CHECK(result.next_token == 1);
  }
}

TEST_CASE("if q = p, draft tokens are accepted at the largest uniform draw; with disjoint supports, never") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> row = mixed_row(random, 1 + random.below(1200), i % 2 ? 1 : 12);
      DraftTokens same{row, row, 2 + i % 3};
      same.draw(random.uniform());
      FixedUniforms largest{kLargestUniform};
      CHECK(same.verify(largest).accepted == std::vector<NodeId>{0, 1});
    }
    DraftTokens apart{{0, 1, -kInf, -kInf}, {-kInf, -kInf, 0, 1}, 3};
    apart.draw(0.5);
    for (const double uniform : {0.0, 0.999}) {
      FixedUniforms fixed{uniform};
      const VerifyResult result = apart.verify(fixed);
      CHECK(result.accepted_count() == 0);
      CHECK(result.next_token == (uniform == 0 ? 0 : 1));
    }
  }
}

TEST_CASE("point masses of the target and of the draft") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    DraftTokens drawn{{0, 3, 1}, {0, 1, 0}, 3};  // the target at temperature 0 is a point mass on token 1
    for (const double uniform : {0.1, 0.5, 0.9}) {
      const Token token = drawn.draw(uniform);
      FixedUniforms zero{0.0}, largest{kLargestUniform};
      CHECK(drawn.verify(zero, {.temperature = 0}).accepted_count() == (token == 1));
      CHECK(drawn.verify(largest, {.temperature = 0}).next_token == 1);
    }
    ProposalBuilder tree(4, 4, 0);
    tree.reset(0, 0);
    for (const Token x : {2, 2, 3}) tree.choose(0, x, 1);
    const std::vector<float> rows = {0, 0, 0, 9, /**/ 0, 0, 0, 0, /**/ 0, 0, 0, 0, /**/ 0, 1, 0, 0};
    FixedUniforms fixed{0.9};
    CHECK(run_rule(KSeq{}, tree, rows, fixed).accepted == std::vector<NodeId>{0, 3});
    CHECK(run_rule(KSeq{}, tree, rows, fixed, {.temperature = 0}).next_token == 1);
  }
}

TEST_CASE("a proposal of the root alone, and a vocabulary of one token") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(5, 4, 0);
    tree.reset(2, 9);
    FixedUniforms uniforms{0.3};
    CHECK(run_rule(KSeq{}, tree, {0, 1, 2, 1, 0}, uniforms).accepted == std::vector<NodeId>{0});
    CHECK(uniforms.accepts.empty());
    CHECK(uniforms.draws == std::vector<RandomKey>{{10, 0, RandomStream::sample, 0}});
    DraftTokens one{{7}, {-3}, 3};  // a vocabulary of one token
    one.draw(0.5);
    FixedUniforms high{0.999};
    CHECK(one.verify(high).accepted == std::vector<NodeId>{0, 1});
    CHECK(one.verify(high).next_token == 0);
  }
}

TEST_CASE("rows off the path are never read; a bad row on it is an error that names the node") {
  check_rows_read(
      KSeq{}, {.nodes = 14, .distinct = false, .chooses = false, .wide = 0.5},
      [](const Case&, const VerifyResult& result, NodeId n) {
        return std::find(result.accepted.begin(), result.accepted.end(), n) != result.accepted.end() ? 1 : 0;
      });
}

TEST_CASE("uniform draws: one per tested node, then one for the next token") {
  DraftTokens draft_tokens{{0, 0, 0}, {0, 0, 0}};
  draft_tokens.draw(0.0);
  FixedUniforms accepted{0.5};
  draft_tokens.verify(accepted);
  CHECK(accepted.accepts == std::vector<RandomKey>{{4, 3, RandomStream::accept, 1}});
  CHECK(accepted.draws == std::vector<RandomKey>{{5, 0, RandomStream::sample, 0}});
  draft_tokens.p = {-kInf, 0, 0};
  FixedUniforms rejected{0.5};
  draft_tokens.verify(rejected);
  CHECK(rejected.accepts ==
        std::vector<RandomKey>{{4, 3, RandomStream::accept, 1}, {4, 3, RandomStream::accept, 2}});
  CHECK(rejected.draws == std::vector<RandomKey>{{4, 3, RandomStream::residual, 0}});
}

static_assert(KSeq::lossless_for(ProposalKind::sampled_iid) && !KSeq::lossless_for(ProposalKind::sampled) &&
              !KSeq::lossless_for(ProposalKind::sampled_distinct) &&
              !KSeq::lossless_for(ProposalKind::mixed));
