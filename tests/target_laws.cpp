// labels: numeric
#include <specula/target_laws.hpp>

#include <doctest/doctest.h>

#include <specula/accept/block.hpp>
#include <specula/accept/greedy.hpp>
#include <specula/accept/k_seq.hpp>
#include <specula/accept/lenient.hpp>
#include <specula/accept/rejection.hpp>
#include <specula/accept/sampling.hpp>
#include <specula/accept/shared_noise.hpp>
#include <specula/accept/typical.hpp>

#include <cmath>
#include <string>
#include <utility>

#include <limits>

#include "plain_law.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("laws are the rows', with a stride, and only of the rows that are asked for") {
  constexpr std::int32_t vocab = 5, stride = 7;
  Random random(1);
  std::vector<float> data(3 * stride,
                          std::numeric_limits<float>::quiet_NaN());  // what lies between rows is never read
  const std::vector<float> row = random.row(vocab, 3);
  std::copy(row.begin(), row.end(), data.begin() + 2 * stride);
  VerifyWorkspace workspace(vocab, 4);
  const SamplingParams warm{.temperature = 0.5f};
  const TargetLaws laws({data.data(), 3, vocab, stride}, warm, workspace);
  const RowLaw law = laws[2];
  const RowLaw plain = laws.law(2, {});
  for (Token x = 0; x < vocab; ++x) {
    CHECK(law(x) == doctest::Approx(plain_law(row, warm)[static_cast<std::size_t>(x)]).epsilon(1e-5));
    CHECK(plain(x) == doctest::Approx(plain_law(row, {})[static_cast<std::size_t>(x)]).epsilon(1e-5));
  }
  CHECK(laws.argmax(2) == std::max_element(row.begin(), row.end()) - row.begin());
  CHECK(laws.params().temperature == 0.5f);
  CHECK(laws.weights(law).masses.size() == 1);
  CHECK(laws.weights(law).masses[0] == doctest::Approx(1).epsilon(1e-5));
  CHECK_THROWS_WITH_AS(laws[1],
                       "the target's row after node 1: a row of logits holds NaN or +infinity at token 0",
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(laws.argmax(0),
                       "the target's row after node 0: a row of logits holds NaN or +infinity at token 0",
                       std::runtime_error);
}

TEST_CASE("a residual starts as the law, a point mass too") {
  VerifyWorkspace workspace(600, 4);
  Random random(2);
  const std::vector<float> row = random.row(600, 3);
  const TargetLaws laws({row.data(), 1, 600, 600}, {}, workspace);
  const auto& left = laws.residual(laws[0]);
  CHECK(left.prob(7) == doctest::Approx(plain_law(row, {})[7]).epsilon(1e-5));
  const auto& point = laws.residual(RowLaw::at(599));
  CHECK(point.prob(599) == 1);
  CHECK(point.prob(7) == 0);
  CHECK(point.tile_masses()[1] == 1);
}

TEST_CASE("every rule refuses what it cannot judge") {
  const std::vector<float> rows(16), draft = {0, 1, 2, 3};
  PhiloxChance chance(1);
  Verdict out;
  VerifyWorkspace workspace(4, 4), narrow(4, 1);
  TokenTree fresh(4, 4, 4), two(4, 4, 4), noisy(4, 4, 4);
  two.reset(0, 0);
  two.choose(0, 1, 1);
  noisy.reset(0, 0);
  noisy.draw_shared(0, noisy.store(0, draft, {}), chance);
  const auto each_rule = [&](auto test) {
    test(Greedy{}, "");
    test(SampleAndMatch{}, "");
    test(SharedNoise{}, "");
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
    const auto judge = [&](const TokenTree& tree, std::int32_t n, VerifyWorkspace& work) {
      rule.verify(tree, TargetLaws({rows.data(), n, 4, 4}, {}, work), chance, out);
    };
    using Error = std::invalid_argument;
    CHECK_THROWS_WITH_AS(judge(fresh, 4, workspace),
                         "the proposal has no root: TokenTree::reset() comes first", Error);
    CHECK_THROWS_WITH_AS(judge(two, 1, workspace),
                         "the target gave 1 rows of 4 logits for a proposal of 2 nodes over 4 tokens", Error);
    CHECK_THROWS_WITH_AS(judge(two, 2, narrow), "TargetLaws: a proposal of 2 nodes, a workspace for 1",
                         Error);
    CHECK_THROWS_WITH_AS(
        rule.verify(two, TargetLaws({.data = rows.data(), .rows = 2, .vocab = 4}, {}, workspace), chance,
                    out),
        "the target's rows of 4 logits are 0 floats apart: they overlap", Error);
    if (name.empty()) {
      judge(noisy, 2, workspace);
    } else {
      try {
        judge(noisy, 2, workspace);
        FAIL("judged");
      } catch (const Error& e) {
        CHECK(std::string(e.what()).find(name + ": ") == 0);
      }
    }
    judge(two, 2, workspace);
  });
}

TEST_CASE("parameters out of range, and workspaces that are none") {
  const std::vector<float> rows = {0, 1, 2, 3};
  VerifyWorkspace workspace(4, 4);
  for (const SamplingParams& wrong :
       {SamplingParams{.temperature = -1}, SamplingParams{.temperature = NAN},
        SamplingParams{.temperature = INFINITY}, SamplingParams{.temperature = 1e-30f},
        SamplingParams{.top_k = -1}, SamplingParams{.top_p = 0}, SamplingParams{.top_p = -1},
        SamplingParams{.top_p = NAN}, SamplingParams{.min_p = 2}, SamplingParams{.min_p = NAN}}) {
    CHECK_THROWS_AS(TargetLaws({rows.data(), 1, 4, 4}, wrong, workspace), std::invalid_argument);
    CHECK_THROWS_AS(TargetLaws({rows.data(), 1, 4, 4}, {}, workspace).law(0, wrong), std::invalid_argument);
  }
  CHECK_THROWS_WITH_AS(TargetLaws({rows.data(), 1, 4, 4}, {.top_k = -1}, workspace),
                       "SamplingParams::top_k is -1, must be >= 0 (0 is off)", std::invalid_argument);
  CHECK_THROWS_WITH_AS(VerifyWorkspace(0, 4),
                       "VerifyWorkspace: the vocabulary is 0, must be in [1, 2147483647]",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(VerifyWorkspace(4, 0), "VerifyWorkspace: max_nodes is 0, must be in [1, 16777215]",
                       std::invalid_argument);
  VerifyWorkspace other = std::move(workspace);
  TargetLaws({rows.data(), 1, 4, 4}, {}, other);
  CHECK_THROWS_WITH_AS(
      TargetLaws({rows.data(), 1, 4, 4}, {}, workspace),  // NOLINT(bugprone-use-after-move): the test
      "VerifyWorkspace: it was moved from", std::logic_error);
}

TEST_CASE("shapes that do not fit are errors that say so") {
  const std::vector<float> rows(8);
  VerifyWorkspace workspace(4, 4);
  CHECK_THROWS_WITH_AS(TargetLaws({rows.data(), 1, 5, 5}, {}, workspace),
                       "TargetLaws: rows of 5 logits, a workspace for 4", std::invalid_argument);
  TokenTree tree(4, 4, 0), other(5, 4, 0);
  tree.reset(0, 0), other.reset(0, 0);
  const TargetLaws laws({rows.data(), 2, 4, 4}, {}, workspace);
  laws.check(tree);
  tree.choose(0, 1, 1);
  laws.check(tree);
  CHECK_THROWS_AS(laws.check(other), std::invalid_argument);
  tree.choose(0, 2, 1);
  CHECK_THROWS_WITH_AS(laws.check(tree),
                       "the target gave 2 rows of 4 logits for a proposal of 3 nodes over 4 tokens",
                       std::invalid_argument);
}
