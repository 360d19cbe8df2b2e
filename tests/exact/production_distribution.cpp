// SPDX-License-Identifier: MIT
// labels: long optimised
// The distribution with the production arithmetic: float kernels, Philox uniform draws, a vocabulary of two
// tiles. Chi-square at fixed seeds; n and alpha are stated with each test.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "exact_distribution.hpp"
#include "hash_gram.hpp"
#include "tree_shapes.hpp"

using namespace specula;
using namespace specula_test;

namespace {

constexpr std::int32_t kVocab = 700;
const std::vector<Token> kPrompt = {600, 3, 511};

/// Distance of the counts from `distribution`, in standard deviations of a normal: Wilson and Hilferty's
/// cube root. Cells that expect fewer than 8 are pooled.
double deviation(const std::map<std::vector<Token>, double>& distribution,
                 const std::map<std::vector<Token>, int>& counts, int n) {
  double chi = 0, rest = 0;
  int cells = 0, rest_count = n;
  for (const auto& [cell, p] : distribution) {
    const int count = counts.count(cell) ? counts.at(cell) : 0;
    if (p * n < 8) {
      rest += p * n;
      continue;
    }
    rest_count -= count;
    chi += (count - p * n) * (count - p * n) / (p * n);
    ++cells;
  }
  if (rest > 1) chi += (rest_count - rest) * (rest_count - rest) / rest, ++cells;
  const double k = cells - 1;
  return (std::cbrt(chi / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
}

/// The target's distribution of the next `horizon` tokens, tokens taken modulo `groups`.
std::map<std::vector<Token>, double> projected(const ToyModel& target, const SamplingParams& params,
                                               std::size_t horizon, Token groups) {
  std::map<std::vector<Token>, double> at{{kPrompt, 1.0}}, out;
  for (std::size_t i = 0; i < horizon; ++i) {
    std::map<std::vector<Token>, double> next;
    for (const auto& [text, weight] : at) {
      const std::vector<double> p = distribution_after(target, text, params);
      for (Token x = 0; x < kVocab; ++x) {
        if (p[static_cast<std::size_t>(x)] == 0) continue;
        std::vector<Token> longer = text;
        longer.push_back(i + 1 == horizon ? x % groups : x);
        next[longer] += weight * p[static_cast<std::size_t>(x)];
      }
    }
    at = std::move(next);
  }
  for (const auto& [text, weight] : at) {
    std::vector<Token> cell(text.begin() + static_cast<std::ptrdiff_t>(kPrompt.size()), text.end());
    for (Token& x : cell) x %= groups;
    out[cell] += weight;
  }
  return out;
}

template <class Rule = Sampling, class Shape>
double deviation_of(Shape shape, float sharpness, const SamplingParams& params, std::size_t horizon,
                    Token groups, int n, double& mat) {
  ToyModel target(kVocab, 1, sharpness), draft(kVocab, 1, 0.5f * sharpness);  // a less peaked draft
  Speculator run{TreeVerifier{target, Rule{}, params}, ModelDrafter{draft}, shape};
  std::map<std::vector<Token>, int> counts;
  for (int i = 0; i < n; ++i) {
    PhiloxRandom rng(12345, static_cast<std::uint32_t>(i));
    run.start(kPrompt);
    while (run.text().size() < kPrompt.size() + horizon) run.step(rng);
    std::vector<Token> cell;
    for (std::size_t t = 0; t < horizon; ++t) cell.push_back(run.text()[kPrompt.size() + t] % groups);
    ++counts[cell];
  }
  mat = run.stats().mat();
  return deviation(projected(target, params, horizon, groups), counts, n);
}

}  // namespace

TEST_CASE("a sampled chain, three tokens under top-k 12: n 7,000, alpha 1e-4") {
  double mat = 0;  // shows that draft tokens were both accepted and rejected
  CHECK(std::abs(deviation_of(Chain<Draw::sampled>{.length = 3}, 60.0f, {.temperature = 0.8f, .top_k = 12}, 3,
                              10, 7000, mat)) < 3.89);
  CHECK(mat > 1.5);
  CHECK(mat < 3.5);
}

TEST_CASE("a sampled chain, two tokens of the whole vocabulary: n 7,000, alpha 1e-4") {
  double mat = 0;
  CHECK(std::abs(deviation_of(Chain<Draw::sampled>{.length = 2}, 6.0f, {}, 2, 20, 7000, mat)) < 3.89);
  CHECK(mat > 1.5);
  CHECK(mat < 2.9);
}

TEST_CASE("three distinct siblings, one token: n 7,000, alpha 1e-4") {
  double mat = 0;
  CHECK(std::abs(deviation_of(DistinctTriple{}, 6.0f, {}, 1, kVocab, 7000, mat)) < 3.89);
  CHECK(mat < 1.99);
}

TEST_CASE("a sampled chain of four by block verification, two tokens: n 7,000, alpha 1e-4") {
  double mat = 0;
  CHECK(std::abs(deviation_of<Block>(Chain<Draw::sampled>{.length = 4}, 6.0f, {}, 2, 20, 7000, mat)) < 3.89);
  CHECK(mat > 2.2);
  CHECK(mat < 4.5);
}

TEST_CASE("two by two distinct draws by traversal, two tokens: n 7,000, alpha 1e-4") {
  using Distinct = SampledTree<ProposalKind::sampled_distinct>;
  double mat = 0;
  CHECK(std::abs(deviation_of<Traversal>(Distinct{.widths = {2, 2}}, 6.0f, {}, 2, 20, 7000, mat)) < 3.89);
  CHECK(mat > 2);
  CHECK(mat < 2.9);
}

TEST_CASE("two by two distinct draws by traversal under top-k 12, three tokens: n 4,000, alpha 1e-4") {
  using Distinct = SampledTree<ProposalKind::sampled_distinct>;
  double mat = 0;
  CHECK(std::abs(deviation_of<Traversal>(Distinct{.widths = {2, 2}}, 60.0f,
                                         {.temperature = 0.8f, .top_k = 12}, 3, 10, 4000, mat)) < 3.89);
  CHECK(mat > 1.5);
  CHECK(mat < 2.9);
}

TEST_CASE("a cascade of three with lenience, two tokens; three under top-k: n 6,000 and 3,000, alpha 1e-4") {
  const auto deviation_of_cascade = [](auto rule, auto last, const SamplingParams& params, float sharpness,
                                       std::size_t horizon, Token groups, int n, double& mat) {
    ToyModel target(kVocab, 1, sharpness), base(kVocab, 1, 0.6f * sharpness),
        small(kVocab, 1, 0.3f * sharpness);
    const Cascade<3, Draw::sampled> shape{.limits = {{{2, 1, 1}, {0, 1, 2}, {0, 0, 2}}}, .lenience = 3};
    Speculator run{TreeVerifier{target, rule, params}, Stack{ModelDrafter{base}, ModelDrafter{small}, last},
                   shape};
    std::map<std::vector<Token>, int> counts;
    for (int i = 0; i < n; ++i) {
      PhiloxRandom rng(54321, static_cast<std::uint32_t>(i));
      run.start(kPrompt);
      while (run.text().size() < kPrompt.size() + horizon) run.step(rng);
      std::vector<Token> cell;
      for (std::size_t t = 0; t < horizon; ++t) cell.push_back(run.text()[kPrompt.size() + t] % groups);
      ++counts[cell];
    }
    mat = run.stats().mat();
    std::int64_t forgiven = 0, judged = 0;
    for (const Reviews& reviews : run.shape().reviewed())
      for (std::size_t d = 0; d < Reviews::kDepths; ++d)
        forgiven += reviews.accepted[d], judged += reviews.offered[d];
    CHECK(forgiven > judged / 20);
    CHECK(forgiven < judged * 19 / 20);
    return deviation(projected(target, params, horizon, groups), counts, n);
  };
  double mat = 0;
  const SamplingParams truncated{.temperature = 0.8f, .top_k = 12};
  ToyModel other(kVocab, 2, 4.0f);
  CHECK(std::abs(deviation_of_cascade(Sampling{}, ModelDrafter{other}, {}, 6.0f, 2, 20, 6000, mat)) < 3.89);
  CHECK(mat > 1.5);
  CHECK(mat < 4.5);
  CHECK(std::abs(deviation_of_cascade(Block{}, HashGram(kVocab, 3), truncated, 60.0f, 3, 10, 3000, mat)) <
        3.89);
  CHECK(mat > 1.5);
  CHECK(mat < 4.5);
}
