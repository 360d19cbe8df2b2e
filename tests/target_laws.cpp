// labels: numeric
#include <doctest/doctest.h>
#include <specula/target_laws.hpp>

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
