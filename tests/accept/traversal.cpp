// SPDX-License-Identifier: MIT
// labels: optimised
// Traversal verification of trees, leaf to root, against a dense reference implementation.
#include <specula/accept/exact_rules.hpp>

#include <doctest/doctest.h>
#include <specula/proposal/proposal_builder.hpp>

#include <map>
#include <utility>

#include "exact_random.hpp"
#include "fixed_uniforms.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula_test;

namespace {

VerifyResult dense(const Case& it, DenseUniforms& uniforms) {
  return dense_traversal(it.dense, it.distributions, uniforms);
}

/// 1: the row is read; 0: it is not; 2: that depends on the node's weight.
int asks(const Case& it, const VerifyResult& result, NodeId n) {
  const auto on_path = [&](NodeId node) {
    return std::find(result.accepted.begin(), result.accepted.end(), node) != result.accepted.end();
  };
  if (on_path(n)) return 1;
  if (it.tree.first_child(n) == kNoParent) return 0;
  NodeId top = n;  // the child of a path's node above n
  while (!on_path(it.tree.parent(top))) top = it.tree.parent(top);
  for (const NodeId p : result.accepted)
    if (it.tree.parent(p) == it.tree.parent(top) && p < top) return 0;  // an earlier sibling was accepted
  return 2;
}

}  // namespace

TEST_CASE(
    "same uniform draws, same verification result as the dense rule: chains and trees of every growth") {
  compare(Traversal{}, dense, {1, 300, 2, 9, 8}, {.wide = 0});
  compare(Traversal{}, dense, {2, 300, 2, 9, 20}, {.wide = 0.5});
  compare(Traversal{}, dense, {3, 200, 3, 9, 20}, {.distinct = false, .chooses = false, .wide = 0.6});
  compare(Traversal{}, dense, {4, 200, 3, 9, 16}, {.draws = false, .chooses = false, .wide = 0.6});
  compare(Traversal{}, dense, {5, 200, 3, 9, 16}, {.draws = false, .distinct = false, .wide = 0.4});
}

TEST_CASE("the same where a row has several tiles") {
  compare(Traversal{}, dense, {6, 60, 500, 1600, 10, 0.8}, {.wide = 0.5, .spread = 9});
}

TEST_CASE("more than 32 siblings and more than 64 nodes, duplicates among them") {
  Random random(6);
  for (std::uint64_t i = 0; i < 40; ++i) {
    const ReferenceArithmetic reference;
    const Case it =
        random_case(random, 50, {}, {.nodes = 100, .draws = i % 2 == 0, .wide = 0.97, .spread = 1}, i);
    std::size_t siblings = 0;
    for (NodeId n = 0; n < it.tree.size(); ++n) siblings = std::max(siblings, it.dense.children(n).size());
    CHECK(it.tree.size() == 100);
    DenseUniforms uniforms(i);
    const VerifyResult want = dense(it, uniforms), got = result_of(Traversal{}, it, {}, i);
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
  }
  // 40 children of the root, of which only the last is accepted.
  ProposalBuilder tree(64, 41, 0);
  tree.reset(0, 0);
  for (Token x = 1; x <= 40; ++x) tree.choose(0, x, 1);
  std::vector<float> rows(41 * 64, 0.0f);
  for (Token x = 0; x < 64; ++x) rows[static_cast<std::size_t>(x)] = x == 40 ? 0.0f : -kInf;
  PhiloxRandom rng(3);
  CHECK(run_rule(Traversal{}, tree, rows, rng).accepted == std::vector<NodeId>{0, 40});
}

TEST_CASE("a path of 5,000 nodes does not overflow the stack") {
  ProposalBuilder tree(4, 5001, 0);
  tree.reset(0, 0);
  for (NodeId n = 0; n < 5000; ++n) tree.choose(n, n % 3, 1);
  const std::vector<float> rows(4 * 5001, 0.0f);
  FixedUniforms largest{kLargestUniform}, zero{0.0};
  CHECK(run_rule(Traversal{}, tree, rows, largest).accepted_count() == 0);
  CHECK(run_rule(Traversal{}, tree, rows, zero).accepted_count() < 5000);  // the weight underflows on the way
}

TEST_CASE("on a chain, traversal is block verification, with the same uniform draws") {
  Random random(7);
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Case it =
        random_case(random, 2 + random.below(6), {}, {.nodes = 1 + random.below(8), .wide = 0}, i);
    const VerifyResult a = result_of(Traversal{}, it, {}, i), b = result_of(Block{}, it, {}, i);
    CHECK(a.accepted == b.accepted);
    CHECK(a.next_token == b.next_token);
  }
}

TEST_CASE(
    "on a deterministic tree, results have the same distribution as those of sample-and-match, the optimum") {
  const ReferenceArithmetic exact;
  Random random(8);
  int unlike = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    Case it = random_case(random, 2 + random.below(3), i % 3 ? SamplingParams{} : SamplingParams{.top_k = 2},
                          {.nodes = 2 + random.below(5), .draws = false, .distinct = false, .wide = 0.5}, i);
    const auto distribution = [&](const auto& rule) {
      std::map<std::pair<std::vector<NodeId>, Token>, double> out;
      VerifyWorkspace workspace(it.tree.vocab(), it.tree.size());
      ExactRandom rng;
      VerifyResult result;
      do {
        rng.begin();
        decide_checked(
            rule, it.tree,
            TargetDistributions(it.view(), i % 3 ? SamplingParams{} : SamplingParams{.top_k = 2}, workspace),
            rng, result);
        out[{result.accepted, result.next_token}] += rng.weight();
      } while (rng.next());
      return out;
    };
    bool duplicates = false;  // whose second may be accepted by traversal only
    for (NodeId n = 0; n < it.tree.size(); ++n)
      for (NodeId c = it.tree.first_child(n); c != kNoParent; c = it.tree.next_sibling(c))
        for (NodeId d = it.tree.next_sibling(c); d != kNoParent; d = it.tree.next_sibling(d))
          duplicates = duplicates || it.tree.token(c) == it.tree.token(d);
    if (duplicates) continue;
    auto ours = distribution(Traversal{}), best = distribution(SampleAndMatch{});
    double mean = 0, mean_best = 0;
    for (const auto& [result, weight] : ours) {
      CHECK(weight == doctest::Approx(best[result]).epsilon(1e-12));
      mean += weight * static_cast<double>(result.first.size());
    }
    for (const auto& [result, weight] : best) mean_best += weight * static_cast<double>(result.first.size());
    CHECK(mean == doctest::Approx(mean_best).epsilon(1e-12));
    unlike += ours.size() > 2;
  }
  CHECK(unlike > 20);
}

TEST_CASE("a uniform draw of 0 accepts neither a token of target probability 0 nor tokens below it") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(3, 4, 0);
    tree.reset(0, 0);
    tree.choose(0, 0, 1);
    tree.choose(1, 1, 1);
    tree.choose(0, 1, 1);
    FixedUniforms zero{0.0};
    const VerifyResult result =
        run_rule(Traversal{}, tree, {-kInf, 1, 2, /**/ 0, 5, 0, /**/ 0, 0, 0, /**/ 0, 0, 3}, zero);
    CHECK(result.accepted == std::vector<NodeId>{0, 3});
    CHECK(result.next_token == 0);
  }
}

TEST_CASE("if q = p, the whole first path is accepted, even at the largest uniform draw") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(9);
    for (int i = 0; i < 100; ++i) {
      const std::int32_t vocab = 1 + random.below(1200);
      std::vector<float> rows;
      for (int n = 0; n < 7; ++n) {
        const std::vector<float> row = mixed_row(random, vocab, i % 2 ? 1 : 12);
        rows.insert(rows.end(), row.begin(), row.end());
      }
      ProposalBuilder tree(vocab, 7, 3);
      tree.reset(0, 0);
      FixedUniforms draws{random.uniform()};
      for (NodeId n = 0; n < 3; ++n) {
        const Distribution q = tree.store(n, LogitsView{rows.data(), 7, vocab, vocab}.row(n), {});
        tree.draw(n, q, draws);
        tree.draw(n, q, draws);
      }
      FixedUniforms largest{kLargestUniform};
      CHECK(run_rule(Traversal{}, tree, rows, largest).accepted == std::vector<NodeId>{0, 1, 3});
    }
  }
}

TEST_CASE("point masses against point masses") {
  ProposalBuilder tree(4, 6, 0);
  tree.reset(0, 0);
  tree.choose(0, 1, 1);
  tree.choose(0, 2, 1);
  tree.choose(1, 0, 1);
  tree.choose(2, 3, 1);
  tree.choose(2, 1, 1);
  const std::vector<float> rows = {0,      0, 1, 0, /**/ 1, 0, 0, 0, /**/ 0, 1, 0, 0,
                                   /**/ 0, 0, 0, 1, /**/ 0, 0, 0, 1, /**/ 0, 0, 0, 1};
  for (const double uniform : {0.0, 0.5, kLargestUniform}) {
    FixedUniforms fixed{uniform};
    const VerifyResult out = run_rule(Traversal{}, tree, rows, fixed, {.temperature = 0});
    CHECK(out.accepted == std::vector<NodeId>{0, 2, 5});
    CHECK(out.next_token == 3);
  }
}

TEST_CASE("a proposal of the root alone, and a vocabulary of one token") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(5, 4, 0);
    tree.reset(2, 9);
    FixedUniforms uniforms{0.3};
    CHECK(run_rule(Traversal{}, tree, {0, 1, 2, 1, 0}, uniforms).accepted == std::vector<NodeId>{0});
    CHECK(uniforms.accepts.empty());
    CHECK(uniforms.draws == std::vector<RandomKey>{{10, 0, RandomStream::sample, 0}});

    ProposalBuilder one(1, 4, 4);  // a vocabulary of one token
    one.reset(0, 0);
    const std::vector<float> rows = {7, -3, 0, 2};
    one.draw(0, one.store(0, std::span<const float>(rows).first(1), {}), uniforms);
    one.choose(0, 0, 1);
    one.choose(1, 0, 1);
    FixedUniforms high{0.999};
    const VerifyResult out = run_rule(Traversal{}, one, rows, high);
    CHECK(out.accepted == std::vector<NodeId>{0, 1, 3});
    CHECK(out.next_token == 0);
  }
}

TEST_CASE("rows of rejected leaves and of nodes beyond the result are never read") {
  check_rows_read(Traversal{}, {.nodes = 14, .wide = 0.5}, asks);
}

TEST_CASE("uniform draws: from leaf to root, with each node's own key") {
  ProposalBuilder tree(3, 5, 5);  // 1 and 2 below the root, 3 and 4 below 1
  tree.reset(0, 6);
  FixedUniforms draws{0.0};
  const std::vector<float> q(3);
  const Distribution root = tree.store(0, q, {});
  tree.draw(0, root, draws);
  tree.draw_distinct(0, root, draws);
  const Distribution below = tree.store(1, q, {});
  tree.draw(1, below, draws);
  tree.draw_distinct(1, below, draws);
  std::vector<float> rows = {-0.02f, 0.005f, 0.015f, /**/ -0.7f, 0,      0, /**/ 0, 0,
                             0,      /**/ 0, 0,      0,          /**/ 0, 0, 0};
  FixedUniforms rejects{kLargestUniform};
  CHECK(run_rule(Traversal{}, tree, rows, rejects).accepted == std::vector<NodeId>{0});
  std::vector<std::uint32_t> order;
  for (const RandomKey& key : rejects.accepts) {
    const auto node = static_cast<NodeId>(key.index);
    CHECK(key == RandomKey{6 + tree.depth(node), 6, RandomStream::accept, key.index});
    if (order.empty() || order.back() != key.index)
      order.push_back(key.index);  // requested again: the same uniform draw
  }
  CHECK(order == std::vector<std::uint32_t>{3, 4, 1, 2});
  CHECK(rejects.draws == std::vector<RandomKey>{{7, 6, RandomStream::residual, 0}});

  FixedUniforms takes{0.0};
  CHECK(run_rule(Traversal{}, tree, rows, takes).accepted == std::vector<NodeId>{0, 1, 3});
  CHECK(takes.accepts == std::vector<RandomKey>{{8, 6, RandomStream::accept, 3}});
  CHECK(takes.draws == std::vector<RandomKey>{{9, 0, RandomStream::sample, 0}});
}

TEST_CASE("a workspace for fewer nodes is an error") {
  ProposalBuilder tree(3, 4, 0);
  tree.reset(0, 0);
  tree.choose(0, 1, 1);
  VerifyWorkspace workspace(3, 1);
  PhiloxRandom rng(1);
  VerifyResult out;
  const std::vector<float> rows(6);
  CHECK_THROWS_WITH_AS(
      decide_checked(Traversal{}, tree, TargetDistributions({rows.data(), 2, 3, 3}, {}, workspace), rng, out),
      "TargetDistributions: a proposal of 2 nodes, a workspace for 1", std::invalid_argument);
}

static_assert(Traversal::lossless_for(ProposalKind::deterministic) &&
              Traversal::lossless_for(ProposalKind::sampled_distinct) &&
              Traversal::lossless_for(ProposalKind::mixed) && !Traversal::lossless_for(ProposalKind::shared));
