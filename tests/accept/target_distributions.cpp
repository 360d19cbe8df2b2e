// SPDX-License-Identifier: MIT
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

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include <limits>

#include "plain_distribution.hpp"
#include "random.hpp"
#include "structured_rows.hpp"
#include "worst.hpp"

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
  CHECK(distributions.weights(distribution).tile_masses().size() == 1);
  CHECK(distributions.weights(distribution).tile_masses()[0] == doctest::Approx(1).epsilon(1e-5));
  CHECK_THROWS_WITH_AS(distributions[1],
                       "the target's row after node 1: a row of logits holds NaN or +infinity at token 0",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(distributions.argmax(0),
                       "the target's row after node 0: a row of logits holds NaN or +infinity at token 0",
                       std::runtime_error);
}

TEST_CASE("distributions and largest logits of rows with structure") {
  Random random(5);
  for (const RowKind kind : kRowKinds)
    for (const std::int32_t vocab : {3, 17, 513}) {
      const std::vector<float> row = structured_row(kind, vocab, random);
      VerifyWorkspace workspace(vocab, 2);
      const TargetDistributions distributions({row.data(), 1, vocab, vocab}, {}, workspace);
      const std::vector<double> want = plain_distribution(row, {});
      const Distribution distribution = distributions[0];
      double worst = 0;
      for (Token x = 0; x < vocab; ++x)
        worst = worse(worst, std::abs(distribution(x) - want[static_cast<std::size_t>(x)]));
      if (!(worst < 1e-6)) FAIL_CHECK(std::string(name_of(kind)), ", V ", vocab, ": ", worst);
      CHECK(distributions.argmax(0) == std::max_element(row.begin(), row.end()) - row.begin());
    }
}

TEST_CASE("a residual starts as the distribution, a point mass too") {
  VerifyWorkspace workspace(600, 4);
  Random random(2);
  const std::vector<float> row = random.row(600, 3);
  const TargetDistributions distributions({row.data(), 1, 600, 600}, {}, workspace);
  const auto left = distributions.residual(distributions[0]);
  CHECK(left.prob(7) == doctest::Approx(plain_distribution(row, {})[7]).epsilon(1e-5));
  const auto point = distributions.residual(Distribution::at(599));
  CHECK(point.prob(599) == 1);
  CHECK(point.prob(7) == 0);
  CHECK(point.tile_masses()[1] == 1);
}

namespace {

/// Whether every member of the weights throws std::logic_error, or none does.
template <class Weights>
bool ended(const Weights& weights) {
  std::array<float, 512> tile;
  int threw = 0;
  const auto call = [&](auto member) {
    try {
      member();
    } catch (const std::logic_error&) {
      ++threw;
    }
  };
  call([&] { (void)weights(0); });
  call([&] { (void)weights.tile_masses(); });
  call([&] { weights.fill(0, tile.data()); });
  CHECK(threw % 3 == 0);
  return threw == 3;
}

}  // namespace

// Every view and value that a rule is given, and what of it remains after the calls that reuse its memory.
TEST_CASE(
    "what a rule is given is a value, or throws once its memory is used again, in one tile and in three") {
  for (const std::int32_t vocab : {6, 512, 513, 1400}) {
    CAPTURE(vocab);
    Random random(3);
    std::vector<float> rows = random.row(vocab, 3);
    const std::vector<float> second = random.row(vocab, 3);
    rows.insert(rows.end(), second.begin(), second.end());
    const LogitsView view{rows.data(), 2, vocab, vocab};
    VerifyWorkspace workspace(vocab, 4);
    const TargetDistributions target(view, {}, workspace);
    PhiloxRandom rng(1);
    const auto after = [&](auto call) {
      const auto weights = target.weights(target[0]);
      CHECK(!ended(weights));
      call();
      return ended(weights);
    };
    const Distribution other = target[1];
    // weights(): the next row that is read ends them
    CHECK(after([&] { (void)target[1]; }));
    CHECK(after([&] { (void)target[0]; }));
    CHECK(after([&] { (void)target.distribution(1, {.temperature = 0.5f}); }));
    CHECK(after([&] { (void)target.weights(other); }));
    CHECK(after([&] { (void)target.sample(other, {}, rng); }));
    CHECK(after([&] { (void)TargetDistributions(target)[1]; }));            // a copy over the same workspace
    CHECK(after([&] { (void)TargetDistributions(view, {}, workspace); }));  // the next round
    // and nothing else does
    CHECK(!after([&] { (void)target.argmax(1); }));
    CHECK(!after([&] { (void)target.distribution(1, {.temperature = 0}); }));  // an argmax too
    const auto twice = target.weights(target[0]);
    CHECK(!ended(target.weights(twice.distribution)));
    CHECK(!ended(twice));
    CHECK(!after([&] { (void)target.residual(other); }));

    // distributions: values
    const Distribution first = target[0];
    const double before = first(2);
    (void)target[1];
    CHECK(first(2) == before);

    // residual(): the next one ends it, and its weights are those of its tiles only once measured
    auto left = target.residual(target[0]);
    CHECK(!ended(left));
    const auto another = target.residual(first);  // not the row read last: its tiles are not measured
    CHECK(ended(left));
    CHECK_THROWS_AS(left.prob(0), std::logic_error);
    CHECK_THROWS_AS(left.total(), std::logic_error);
    CHECK_THROWS_AS((void)left.measured(), std::logic_error);
    CHECK_THROWS_WITH_AS((void)left.last_step(), "a residual is stale: another was started since",
                         std::logic_error);
    CHECK(another.prob(2) == doctest::Approx(before));
    (void)target[1];
    auto unmeasured = target.residual(first);
    CHECK_THROWS_WITH_AS((void)unmeasured.tile_masses(),
                         "a draw from a residual whose tiles were not measured: draw from measured()",
                         std::logic_error);
    CHECK(!ended(unmeasured.measured()));
    const TargetDistributions next(view, {}, workspace);
    CHECK(ended(unmeasured));

    // states of nodes: new in each verification
    next.node_states()[1].weight = 0.25;
    next.node_states()[1].keep = 7;
    CHECK(next.node_states()[1].weight == 0.25);
    CHECK(TargetDistributions(next).node_states()[1].keep == 7);
    const TargetDistributions later(view, {}, workspace);
    CHECK(later.node_states()[1].weight == 1);
    CHECK(later.node_states()[1].keep == 0);
  }
}

TEST_CASE("masses are not those of a row that was at the same address before") {
  constexpr std::int32_t kVocab = 600;
  std::vector<float> row(kVocab, -INFINITY);
  row[3] = 0;
  VerifyWorkspace workspace(kVocab, 2);
  const Distribution of_log_probs{.logits = row.data()};  // the same scalars whatever the row
  const auto masses = [&] {
    const TargetDistributions target({row.data(), 1, kVocab, kVocab}, {}, workspace);
    const auto weights = target.weights(of_log_probs);
    return std::pair(weights.tile_masses()[0], weights.tile_masses()[1]);
  };
  CHECK(masses().first == doctest::Approx(1));
  std::swap(row[3], row[550]);
  CHECK(masses().first == 0);
  CHECK(masses().second == doctest::Approx(1));
}

TEST_CASE("every rule refuses proposals for which it is not exact") {
  const std::vector<float> rows(16), draft = {0, 1, 2, 3};
  PhiloxRandom rng(1);
  VerifyResult out;
  VerifyWorkspace workspace(4, 4), narrow(4, 1);
  ProposalBuilder fresh(4, 4, 4), begun(4, 4, 4), two(4, 4, 4), noisy(4, 4, 4);
  begun.reset(0, 0);
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
      decide_checked(rule, tree, TargetDistributions({rows.data(), n, 4, 4}, {}, work), rng, out);
    };
    using Error = std::invalid_argument;
    CHECK_THROWS_WITH_AS(run_rule(fresh, 4, workspace),
                         "the proposal has no root: call ProposalBuilder::reset() first", Error);
    run_rule(begun, 1, workspace);
    CHECK_THROWS_WITH_AS(run_rule(two, 1, workspace),
                         "the target gave 1 rows of 4 logits for a proposal of 2 nodes over 4 tokens", Error);
    CHECK_THROWS_WITH_AS(run_rule(two, 2, narrow),
                         "TargetDistributions: a proposal of 2 nodes, a workspace for 1", Error);
    CHECK_THROWS_WITH_AS(
        decide_checked(rule, two,
                       TargetDistributions({.data = rows.data(), .rows = 2, .vocab = 4}, {}, workspace), rng,
                       out),
        "the target's rows of 4 logits are 0 floats apart: they overlap", Error);
    if (name.empty()) {
      run_rule(noisy, 2, workspace);
    } else {
      CHECK_THROWS_WITH_AS(
          run_rule(noisy, 2, workspace),
          "the proposal was drawn with the target's own noise; only rules that do not look at the draft's "
          "distributions may judge it, as GumbelCoupling",
          Error);
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
}

TEST_CASE("errors name array sizes that do not match") {
  const std::vector<float> rows(8);
  VerifyWorkspace workspace(4, 4);
  CHECK_THROWS_WITH_AS(TargetDistributions({rows.data(), 1, 5, 5}, {}, workspace),
                       "TargetDistributions: rows of 5 logits, a workspace for 4", std::invalid_argument);
  ProposalBuilder tree(4, 4, 0), other(5, 4, 0);
  tree.reset(0, 0), other.reset(0, 0);
  const TargetDistributions distributions({rows.data(), 2, 4, 4}, {}, workspace);
  distributions.expect_fits(tree);
  tree.choose(0, 1, 1);
  distributions.expect_fits(tree);
  CHECK_THROWS_AS(distributions.expect_fits(other), std::invalid_argument);
  tree.choose(0, 2, 1);
  CHECK_THROWS_WITH_AS(distributions.expect_fits(tree),
                       "the target gave 2 rows of 4 logits for a proposal of 3 nodes over 4 tokens",
                       std::invalid_argument);
}
