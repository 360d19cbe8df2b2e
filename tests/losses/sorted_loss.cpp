// SPDX-License-Identifier: MIT
// sorted_loss(): the mean cross entropy over exits (S2D).
#include <losses/sorted_loss.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "random.hpp"

using namespace specula;
using specula_test::Random;

namespace {

template <class Real>
using Rows = std::vector<std::vector<Real>>;

template <class Real>
Rows<Real> random_rows(Random& random, std::size_t exits, std::int32_t vocab) {
  Rows<Real> rows;
  for (std::size_t e = 0; e < exits; ++e) {
    const auto row = random.row(vocab, 5);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

template <class Real>
double loss_of(const Rows<Real>& rows, Token token, Rows<Real>* gradients = nullptr, double scale = 1) {
  std::vector<std::span<const Real>> logits(rows.begin(), rows.end());
  std::vector<std::span<Real>> out;
  if (gradients) out.assign(gradients->begin(), gradients->end());
  return sorted_loss<Real>(logits, token, out, scale);
}

/// A naive reference.
template <class Real>
double naive(const Rows<Real>& rows, Token token) {
  double loss = 0;
  for (const auto& row : rows) {
    double sum = 0;
    for (const Real l : row) sum += std::exp(static_cast<double>(l));
    loss += std::log(sum) - static_cast<double>(row[static_cast<std::size_t>(token)]);
  }
  return loss / static_cast<double>(rows.size());
}

}  // namespace

TEST_CASE("the loss is the mean cross entropy of the exits") {
  Random random(1);
  for (const std::int32_t vocab : {1, 2, 511, 512, 513, 2048}) {
    CAPTURE(vocab);
    const auto single = random_rows<float>(random, 3, vocab);
    const auto token = random.below(vocab);
    CHECK(loss_of(single, token) == doctest::Approx(naive(single, token)).epsilon(1e-6));
    const auto rows = random_rows<double>(random, 2, vocab);
    CHECK(loss_of(rows, token) == doctest::Approx(naive(rows, token)).epsilon(1e-12));
  }
}

TEST_CASE("the gradient agrees with finite differences") {
  Random random(2);
  auto rows = random_rows<double>(random, 3, 37);
  auto gradients = rows;
  loss_of(rows, 5, &gradients, 2.5);
  for (std::size_t e = 0; e < 3; ++e)
    for (std::size_t x = 0; x < 37; ++x) {
      const double before = rows[e][x], step = 1e-6;
      rows[e][x] = before + step;
      const double up = loss_of(rows, 5);
      rows[e][x] = before - step;
      const double down = loss_of(rows, 5);
      rows[e][x] = before;
      CHECK(gradients[e][x] == doctest::Approx(2.5 * (up - down) / (2 * step)).epsilon(1e-6));
    }
}

TEST_CASE("the float gradient agrees with the double one, also in place") {
  Random random(3);
  for (const std::int32_t vocab : {1, 37, 1025}) {
    auto rows = random_rows<float>(random, 2, vocab);
    Rows<double> wide;
    for (const auto& row : rows) wide.emplace_back(row.begin(), row.end());
    auto want = wide;
    const auto token = random.below(vocab);
    loss_of(wide, token, &want);
    loss_of(rows, token, &rows);
    for (std::size_t e = 0; e < 2; ++e)
      for (std::size_t x = 0; x < static_cast<std::size_t>(vocab); ++x)
        CHECK(std::abs(static_cast<double>(rows[e][x]) - want[e][x]) < 1e-6);
  }
}

TEST_CASE("bad rows are refused") {
  Random random(4);
  auto rows = random_rows<float>(random, 2, 7);
  CHECK_THROWS_WITH_AS(loss_of(Rows<float>{}, 0), doctest::Contains("sorted_loss: no exits"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(loss_of(rows, 7), "sorted_loss: token 7, the rows are 7 wide", std::invalid_argument);
  CHECK_THROWS_WITH_AS(loss_of(rows, -1), doctest::Contains("sorted_loss: token -1"), std::invalid_argument);
  auto one = Rows<float>{rows[0]};
  CHECK_THROWS_WITH_AS(loss_of(rows, 0, &one),
                       doctest::Contains("sorted_loss: 2 rows of logits, 1 of gradients"),
                       std::invalid_argument);
  auto narrow = rows;
  narrow[1].pop_back();
  CHECK_THROWS_WITH_AS(loss_of(narrow, 0),
                       doctest::Contains("sorted_loss: the rows of exit 1 are not 7 wide"),
                       std::invalid_argument);
  const auto untouched = rows;
  auto gradients = rows;
  gradients[1].pop_back();
  CHECK_THROWS_WITH_AS(loss_of(rows, 0, &gradients),
                       doctest::Contains("sorted_loss: the rows of exit 1 are not 7 wide"),
                       std::invalid_argument);
  CHECK(gradients[0] == untouched[0]);  // checked before any is written
  rows[1][3] = -std::numeric_limits<float>::infinity();
  CHECK_NOTHROW(loss_of(rows, 2));
  CHECK_THROWS_WITH_AS(
      loss_of(rows, 3),
      doctest::Contains("sorted_loss: the loss is infinite: exit 1's logit of token 3 is -inf"),
      std::runtime_error);
  rows[1][3] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(loss_of(rows, 2),
                       "sorted_loss: an exit's row of logits holds NaN or +infinity at token 3 (exit 1)",
                       std::runtime_error);
}
