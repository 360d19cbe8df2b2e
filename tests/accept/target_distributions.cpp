// TargetDistributions: the target's distributions after each node, computed on request.
#include <specula/accept/target_distributions.hpp>

#include <doctest/doctest.h>

#include <specula/accept/exact_rules.hpp>
#include <specula/accept/gumbel_coupling.hpp>
#include <specula/accept/k_seq.hpp>
#include <specula/accept/lenient.hpp>
#include <specula/accept/lossy.hpp>
#include <specula/accept/typical.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <cmath>
#include <string>
#include <utility>

#include <limits>

#include "plain_distribution.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("distributions of rows with a stride; only requested rows are read") {
  constexpr std::int32_t vocab = 5, stride = 7;
  Random random(1);
  std::vector<float> data(3 * stride,
                          std::numeric_limits<float>::quiet_NaN());  // padding between rows is never read
  const std::vector<float> row = random.row(vocab, 3);
  std::copy(row.begin(), row.end(), data.begin() + 2 * stride);
  VerifyWorkspace workspace(vocab, 4);
  const SamplingParams warm{.temperature = 0.5f};
  const TargetDistributions distributions({data.data(), 3, vocab, stride}, warm, workspace);
  const Distribution distribution = distributions[2];
  const Distribution plain = distributions.distribution(2, {});
  for (Token x = 0; x < vocab; ++x) {
    CHECK(distribution(x) ==
          doctest::Approx(plain_distribution(row, warm)[static_cast<std::size_t>(x)]).epsilon(1e-5));
    CHECK(plain(x) ==
          doctest::Approx(plain_distribution(row, {})[static_cast<std::size_t>(x)]).epsilon(1e-5));
  }
  CHECK(distributions.argmax(2) == std::max_element(row.begin(), row.end()) - row.begin());
  CHECK(distributions.params().temperature == 0.5f);
  CHECK(distributions.weights(distribution).masses.size() == 1);
  CHECK(distributions.weights(distribution).masses[0] == doctest::Approx(1).epsilon(1e-5));
  CHECK_THROWS_WITH_AS(distributions[1],
                       "the target's row after node 1: a row of logits holds NaN or +infinity at token 0",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(distributions.argmax(0),
                       "the target's row after node 0: a row of logits holds NaN or +infinity at token 0",
                       std::runtime_error);
}

TEST_CASE("a residual starts as the distribution, a point mass too") {
  VerifyWorkspace workspace(600, 4);
  Random random(2);
  const std::vector<float> row = random.row(600, 3);
  const TargetDistributions distributions({row.data(), 1, 600, 600}, {}, workspace);
  const auto& left = distributions.residual(distributions[0]);
  CHECK(left.prob(7) == doctest::Approx(plain_distribution(row, {})[7]).epsilon(1e-5));
  const auto& point = distributions.residual(Distribution::at(599));
  CHECK(point.prob(599) == 1);
  CHECK(point.prob(7) == 0);
  CHECK(point.tile_masses()[1] == 1);
}

TEST_CASE("every rule refuses proposals for which it is not exact") {
  const std::vector<float> rows(16), draft = {0, 1, 2, 3};
  PhiloxRandom rng(1);
  VerifyResult out;
  VerifyWorkspace workspace(4, 4), narrow(4, 1);
  ProposalBuilder fresh(4, 4, 4), two(4, 4, 4), noisy(4, 4, 4);
  two.reset(0, 0);
  two.choose(0, 1, 1);
  noisy.reset(0, 0);
  noisy.draw_shared(0, noisy.store(0, draft, {}), rng);
  const auto each_rule = [&](auto test) {
    test(Greedy{}, "");
    test(SampleAndMatch{}, "");
    test(GumbelCoupling{}, "");
    test(accept_lossy(Typical{}), "");
    test(accept_lossy(Rejection{}), "");
    test(accept_lossy(Sampling{}), "");
    test(Rejection{}, "Rejection");
    test(Traversal{}, "Traversal");
    test(Block{}, "Block");
    test(Sampling{}, "Sampling");
    test(Lenient{2}, "Lenient");
    test(KSeq{}, "KSeq");
  };
  each_rule([&](auto rule, std::string name) {
    CAPTURE(name);
    const auto run_rule = [&](const TokenTree& tree, std::int32_t n, VerifyWorkspace& work) {
      rule.verify(tree, TargetDistributions({rows.data(), n, 4, 4}, {}, work), rng, out);
    };
    using Error = std::invalid_argument;
    CHECK_THROWS_WITH_AS(run_rule(fresh, 4, workspace),
                         "the proposal has no root: call ProposalBuilder::reset() first", Error);
    CHECK_THROWS_WITH_AS(run_rule(two, 1, workspace),
                         "the target gave 1 rows of 4 logits for a proposal of 2 nodes over 4 tokens", Error);
    CHECK_THROWS_WITH_AS(run_rule(two, 2, narrow),
                         "TargetDistributions: a proposal of 2 nodes, a workspace for 1", Error);
    CHECK_THROWS_WITH_AS(
        rule.verify(two, TargetDistributions({.data = rows.data(), .rows = 2, .vocab = 4}, {}, workspace),
                    rng, out),
        "the target's rows of 4 logits are 0 floats apart: they overlap", Error);
    if (name.empty()) {
      run_rule(noisy, 2, workspace);
    } else {
      try {
        run_rule(noisy, 2, workspace);
        FAIL("judged");
      } catch (const Error& e) {
        CHECK(std::string(e.what()).find(name + ": ") == 0);
      }
    }
    run_rule(two, 2, workspace);
  });
}

TEST_CASE("errors: parameters out of range, unusable workspaces") {
  const std::vector<float> rows = {0, 1, 2, 3};
  VerifyWorkspace workspace(4, 4);
  for (const SamplingParams& wrong :
       {SamplingParams{.temperature = -1}, SamplingParams{.temperature = NAN},
        SamplingParams{.temperature = INFINITY}, SamplingParams{.temperature = 1e-30f},
        SamplingParams{.top_k = -1}, SamplingParams{.top_p = 0}, SamplingParams{.top_p = -1},
        SamplingParams{.top_p = NAN}, SamplingParams{.min_p = 2}, SamplingParams{.min_p = NAN}}) {
    CHECK_THROWS_AS(TargetDistributions({rows.data(), 1, 4, 4}, wrong, workspace), std::invalid_argument);
    CHECK_THROWS_AS(TargetDistributions({rows.data(), 1, 4, 4}, {}, workspace).distribution(0, wrong),
                    std::invalid_argument);
  }
  CHECK_THROWS_WITH_AS(TargetDistributions({rows.data(), 1, 4, 4}, {.top_k = -1}, workspace),
                       "SamplingParams::top_k is -1, must be >= 0 (0 is off)", std::invalid_argument);
  CHECK_THROWS_WITH_AS(VerifyWorkspace(0, 4),
                       "VerifyWorkspace: the vocabulary is 0, must be in [1, 2147483647]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(VerifyWorkspace(4, 0), "VerifyWorkspace: max_nodes is 0, must be in [1, 16777215]",
                       std::invalid_argument);
  VerifyWorkspace other = std::move(workspace);
  TargetDistributions({rows.data(), 1, 4, 4}, {}, other);
  CHECK_THROWS_WITH_AS(TargetDistributions({rows.data(), 1, 4, 4}, {},
                                           workspace),  // NOLINT(bugprone-use-after-move): the test
                       "VerifyWorkspace: it was moved from", std::logic_error);
}

TEST_CASE("errors name array sizes that do not match") {
  const std::vector<float> rows(8);
  VerifyWorkspace workspace(4, 4);
  CHECK_THROWS_WITH_AS(TargetDistributions({rows.data(), 1, 5, 5}, {}, workspace),
                       "TargetDistributions: rows of 5 logits, a workspace for 4", std::invalid_argument);
  ProposalBuilder tree(4, 4, 0), other(5, 4, 0);
  tree.reset(0, 0), other.reset(0, 0);
  const TargetDistributions distributions({rows.data(), 2, 4, 4}, {}, workspace);
  distributions.check(tree);
  tree.choose(0, 1, 1);
  distributions.check(tree);
  CHECK_THROWS_AS(distributions.check(other), std::invalid_argument);
  tree.choose(0, 2, 1);
  CHECK_THROWS_WITH_AS(distributions.check(tree),
                       "the target gave 2 rows of 4 logits for a proposal of 3 nodes over 4 tokens",
                       std::invalid_argument);
}
