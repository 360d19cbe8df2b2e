// SPDX-License-Identifier: MIT
// labels: optimised
// Typical acceptance (Medusa), against a dense reference implementation.

#include <specula/accept/typical.hpp>

#include <doctest/doctest.h>
#include <specula/accept/lossy.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include "fixed_uniforms.hpp"
#include "structured_rows.hpp"

using namespace specula;
using namespace specula_test;

namespace {

auto dense(double epsilon = 0.09, double delta = 0.3) {
  return [=](const Case& it, DenseUniforms& uniforms) {
    return dense_typical(it.dense, it.distributions, uniforms, epsilon, delta);
  };
}

/// Whether `node` and all its ancestors are accepted.
bool is_accepted(const Case& it, NodeId node) {
  for (NodeId n = node; n != 0; n = it.tree.parent(n)) {
    const Dense& p = it.distributions[static_cast<std::size_t>(it.tree.parent(n))];
    double entropy = 0;
    for (const double x : p)
      if (x > 0) entropy -= x * std::log(x);
    if (!(p[static_cast<std::size_t>(it.tree.token(n))] > std::min(0.09, 0.3 * std::exp(-entropy))))
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE(
    "same uniform draws, same verification result as the dense rule: chains and trees of every growth") {
  compare(Typical{}, dense(), {1, 300, 2, 9, 8}, {.wide = 0});
  compare(Typical{}, dense(), {2, 300, 2, 9, 20}, {.wide = 0.5});
  compare(Typical{0.3, 0.8}, dense(0.3, 0.8), {3, 200, 3, 9, 20},
          {.distinct = false, .chooses = false, .wide = 0.6});
  compare(Typical{0.05, 2.0}, dense(0.05, 2.0), {4, 200, 3, 9, 16}, {.draws = false, .wide = 0.6});
}

TEST_CASE("the same where a row has several tiles") {
  compare(Typical{0.09, 0.1}, dense(0.09, 0.1), {5, 60, 500, 1600, 10, 0.7}, {.wide = 0.5, .spread = 9});
}

TEST_CASE("the entropy of flat rows, peaked rows, and rows with large offsets") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(6);
    for (int i = 0; i < 200; ++i) {
      const std::int32_t vocab = 1 + random.below(1600);
      std::vector<float> row =
          mixed_row(random, vocab, i % 4 ? random.between(0, 20) : 0.0, 0, i % 3 ? 0.2 : 0);
      for (float& l : row) l += i % 5 ? 0.0f : 1000.0f;
      const SamplingParams params =
          i % 2 ? SamplingParams{.temperature = 0.7f, .top_p = 0.9f} : SamplingParams{};
      double want = 0;
      for (const double p : plain_distribution(row, params))
        if (p > 0) want -= p * std::log(p);
      detail::RowScan scan(vocab);
      CHECK(detail::entropy(scan.weights(scan.distribution(row, params))) ==
            doctest::Approx(want).epsilon(1e-5));
    }
  }
}

TEST_CASE("more than 32 siblings and more than 64 nodes; a path of 5,000") {
  const ReferenceArithmetic reference;
  Random random(7);
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Case it = random_case(random, 50, {}, {.nodes = 100, .wide = 0.97, .spread = 3}, i);
    DenseUniforms uniforms(i);
    const VerifyResult want = dense()(it, uniforms), got = result_of(Typical{}, it, {}, i);
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
  }
  ProposalBuilder tree(4, 5001, 0);
  tree.reset(0, 0);
  for (NodeId n = 0; n < 5000; ++n) tree.choose(n, n % 3, 1);
  FixedUniforms uniforms{0.5};
  CHECK(run_rule(Typical{}, tree, std::vector<float>(4 * 5001, 0.0f), uniforms).accepted_count() == 5000);
}

TEST_CASE("a token whose probability equals the threshold is rejected") {
  const ReferenceArithmetic reference;
  ProposalBuilder tree(3, 2, 0);
  tree.reset(0, 0);
  tree.choose(0, 1, 1);
  const std::vector<float> sure = {-kInf, 0, -kInf, /**/ 0, 0, 0};  // p = 1, H = 0
  FixedUniforms uniforms{0.5};
  CHECK(run_rule(Typical{0.0, 0.0}, tree, {0, -kInf, 0, /**/ 0, 0, 0}, uniforms).accepted_count() ==
        0);  // 0 > 0 is false
  CHECK(run_rule(Typical{0.999, 5.0}, tree, sure, uniforms).accepted_count() == 1);
  const std::vector<float> even = {0, 0, -kInf, /**/ 0, 0, 0};  // p = 1/2, exp(-H) = 1/2
  CHECK(run_rule(Typical{0.49, 9.0}, tree, even, uniforms).accepted_count() == 1);
  CHECK(run_rule(Typical{0.51, 9.0}, tree, even, uniforms).accepted_count() == 0);
  CHECK(run_rule(Typical{0.9, 0.99}, tree, even, uniforms).accepted_count() == 1);
  CHECK(run_rule(Typical{0.9, 1.01}, tree, even, uniforms).accepted_count() == 0);
}

TEST_CASE("the deepest accepted path is taken, the first of equally deep ones") {
  ProposalBuilder tree(4, 7, 0);
  tree.reset(0, 0);
  tree.choose(0, 0, 1);  // 1
  tree.choose(0, 1, 1);  // 2
  tree.choose(0, 1, 1);  // 3, the same token again
  tree.choose(3, 2, 1);  // 4
  tree.choose(2, 3, 1);  // 5
  std::vector<float> rows(4 * 7, 0.0f);
  FixedUniforms uniforms{0.0};
  CHECK(run_rule(Typical{}, tree, rows, uniforms).accepted == std::vector<NodeId>{0, 3, 4});
  rows[4 * 3 + 2] = -kInf;
  CHECK(run_rule(Typical{}, tree, rows, uniforms).accepted == std::vector<NodeId>{0, 2, 5});
  rows[1] = -kInf;
  CHECK(run_rule(Typical{}, tree, rows, uniforms).accepted == std::vector<NodeId>{0, 1});
}

TEST_CASE("temperature 0 accepts the target's first largest logit, for any epsilon and delta") {
  const SamplingParams greedy{.temperature = 0};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(8);
    for (std::uint64_t i = 0; i < 200; ++i) {
      const Case it = random_case(random, 5, greedy, {.nodes = 10, .wide = 0.5, .spread = 1}, i);
      const VerifyResult got = result_of(Typical{0.9, 1.0 + static_cast<double>(i)}, it, greedy, i);
      for (std::size_t n = 0; n < got.accepted.size(); ++n) {
        const std::vector<float>& row = it.row[static_cast<std::size_t>(got.accepted[n])];
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        CHECK(best == (n + 1 < got.accepted.size() ? it.tree.token(got.accepted[n + 1]) : got.next_token));
      }
      CHECK(got.accepted_count() >= dense_greedy(it.dense, it.row).accepted_count());
    }
  }
}

TEST_CASE("a proposal of the root alone, and a vocabulary of one token") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(5, 4, 0);
    tree.reset(2, 9);
    FixedUniforms uniforms{0.3};
    CHECK(run_rule(Typical{}, tree, {0, 1, 2, 1, 0}, uniforms).accepted == std::vector<NodeId>{0});
    CHECK(uniforms.accepts.empty());
    CHECK(uniforms.draws == std::vector<RandomKey>{{10, 0, RandomStream::sample, 0}});

    ProposalBuilder one(1, 3, 0);  // a vocabulary of one token
    one.reset(0, 0);
    one.choose(0, 0, 1);
    one.choose(1, 0, 1);
    const VerifyResult out = run_rule(Typical{}, one, {7, -3, 0}, uniforms);
    CHECK(out.accepted == std::vector<NodeId>{0, 1, 2});
    CHECK(out.next_token == 0);
  }
}

TEST_CASE("rows of unreachable nodes are never read, nor those of leaves except the last") {
  check_rows_read(Typical{}, {.nodes = 14, .wide = 0.5, .spread = 5},
                  [](const Case& it, const VerifyResult& result, NodeId n) {
                    const bool asked = n == result.accepted.back() ||
                                       (is_accepted(it, n) && it.tree.first_child(n) != kNoParent);
                    return asked ? 1 : 0;
                  });
}

TEST_CASE("uniform draws: one, for the next token, from p") {
  ProposalBuilder tree(3, 3, 0);
  tree.reset(0, 4);
  tree.choose(0, 1, 1);
  tree.choose(0, 2, 1);
  for (const float logit : {0.0f, -kInf}) {
    FixedUniforms uniforms{0.5};
    const VerifyResult out =
        run_rule(Typical{}, tree, {0, logit, logit, /**/ 0, 0, 0, /**/ 0, 0, 0}, uniforms);
    CHECK(out.accepted_count() == (logit == 0));
    CHECK(uniforms.accepts.empty());
    CHECK(uniforms.draws == std::vector<RandomKey>{{5 + out.accepted_count(), 0, RandomStream::sample, 0}});
  }
}

TEST_CASE("errors of Typical, and lossless_for()") {
  CHECK_THROWS_WITH_AS(Typical{1.5}, "Typical: epsilon is 1.5, must be in [0, 1)", std::invalid_argument);
  CHECK_THROWS_WITH_AS((Typical{0.1, -1}), "Typical: delta is -1, must be finite and at least 0",
                       std::invalid_argument);
  CHECK_THROWS_AS(Typical{-0.1}, std::invalid_argument);
  CHECK_THROWS_AS(Typical{1.0}, std::invalid_argument);
  CHECK_THROWS_AS(Typical{std::numeric_limits<double>::quiet_NaN()}, std::invalid_argument);
  CHECK_THROWS_AS((Typical{0.1, std::numeric_limits<double>::quiet_NaN()}), std::invalid_argument);
  CHECK_THROWS_AS((Typical{0.1, std::numeric_limits<double>::infinity()}), std::invalid_argument);
  CHECK(Typical{}.epsilon() == 0.09);
  CHECK(Typical{}.delta() == 0.3);
  CHECK(accept_lossy(Typical{0.2, 0.5}).delta() == 0.5);
  static_assert(!Typical::lossless_for(ProposalKind::deterministic) &&
                !Typical::lossless_for(ProposalKind::sampled));
  static_assert(AcceptLossy<Typical>::lossless_for(ProposalKind::mixed));
}
