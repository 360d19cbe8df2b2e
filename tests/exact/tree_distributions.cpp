// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of rules over trees grown in every way, against the target's.
#include <doctest/doctest.h>

#include "exact_distribution.hpp"
#include "one_rule.hpp"
#include "tree_shapes.hpp"

using namespace specula;
using namespace specula_test;

namespace {

template <class Shape>
double composed(std::int32_t vocab, const OneRule& rule, Shape shape, const SamplingParams& params,
                std::size_t horizon, std::uint64_t seed) {
  ToyModel target(vocab, seed), draft(vocab, seed + 1);
  Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
  return composed_distribution(run, target, params, prompt_for(vocab), horizon).error;
}

/// Several seeds, with and without truncation, over tokens in one tile and in three.
template <class Shape>
double worst(std::int32_t vocab, const OneRule& rule, Shape shape, std::size_t horizon,
             std::uint64_t seeds = 3) {
  double error = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    for (const SamplingParams& params : {kPlain, kWarm})
      error = std::max(error, composed(vocab, rule, shape, params, horizon, 10 * seed));
  const ThreeTiles wide;
  for (const SamplingParams& params : {kPlain, kWarm})
    error = std::max(error, composed(vocab, rule, shape, params, horizon, 10));
  return error;
}

void check_all_growths(const OneRule& rule) {
  CHECK(worst(3, rule, IidPair{}, 3) < 1e-12);
  CHECK(worst(3, rule, DistinctPair{}, 3) < 1e-12);
  CHECK(worst(4, rule, DistinctTriple{}, 2) < 1e-12);
  CHECK(worst(3, rule, DrawnThenChosen{.pick = 1}, 3) < 1e-12);
  CHECK(worst(3, rule, ChosenThenDistinct{.pick = 2}, 3) < 1e-12);
  CHECK(worst(3, rule, DrawnThenDistinct{}, 3) < 1e-12);
  CHECK(worst(3, rule, ChosenTwice{.pick = 1}, 3) < 1e-12);  // two nodes with one token under one parent
  CHECK(worst(2, rule, DistinctTriple{}, 3) < 1e-12);        // more siblings than tokens
}

}  // namespace

TEST_CASE("one level: rejection") { check_all_growths(Rejection{}); }
TEST_CASE("one level: traversal") { check_all_growths(Traversal{}); }
TEST_CASE("one level: sample-and-match") { check_all_growths(SampleAndMatch{}); }

TEST_CASE("one level: sampling, which chooses between the last two by whether anything was drawn") {
  CHECK(worst(3, Sampling{}, IidPair{}, 3) < 1e-12);
  CHECK(worst(3, Sampling{}, DrawnThenChosen{.pick = 1}, 3) < 1e-12);
  CHECK(worst(3, Sampling{}, ChosenTwice{}, 3) < 1e-12);
  // Under top-k 1 the only token of the draft is drawn, under temperature 0 it is chosen:
  // the results are the same.
  CHECK(composed(3, Sampling{}, DistinctPair{}, {.temperature = 0}, 3, 5) < 1e-12);
  CHECK(composed(3, Sampling{}, IidPair{}, {.top_k = 1}, 3, 5) < 1e-12);
}

TEST_CASE("two levels, two children per node") {
  CHECK(worst(2, Rejection{}, IidPair{.depth = 2}, 3, 2) < 1e-12);
  CHECK(worst(2, Rejection{}, DistinctPair{.depth = 2}, 3, 2) < 1e-12);
  CHECK(composed(3, Rejection{}, DistinctPair{.depth = 2}, kWarm, 3, 7) < 1e-12);
  CHECK(worst(2, Rejection{}, DrawnThenChosen{.depth = 2, .pick = 1}, 3, 2) < 1e-12);
  CHECK(worst(2, Rejection{}, ChosenThenDistinct{.depth = 2}, 3, 2) < 1e-12);
  CHECK(worst(2, Traversal{}, IidPair{.depth = 2}, 3, 2) < 1e-12);
  CHECK(worst(2, Traversal{}, DistinctPair{.depth = 2}, 3, 2) < 1e-12);
  CHECK(composed(3, Traversal{}, DistinctPair{.depth = 2}, kWarm, 3, 7) < 1e-12);
  CHECK(worst(2, Traversal{}, DrawnThenChosen{.depth = 2, .pick = 1}, 3, 2) < 1e-12);
  CHECK(worst(2, Traversal{}, ChosenThenDistinct{.depth = 2}, 3, 2) < 1e-12);
  CHECK(worst(2, Traversal{}, DrawnThenDistinct{.depth = 2}, 3, 2) < 1e-12);
  CHECK(worst(3, Traversal{}, ChosenTwice{.depth = 2, .pick = 1}, 3, 2) < 1e-12);
  CHECK(worst(2, SampleAndMatch{}, IidPair{.depth = 2}, 2, 1) < 1e-12);
  CHECK(worst(3, SampleAndMatch{}, ChosenTwice{.depth = 2, .pick = 1}, 3, 2) < 1e-12);
}

TEST_CASE("whole pipelines over several rounds: uniform draws and state count") {
  const auto whole = [](std::int32_t vocab, const OneRule& rule, auto shape, std::size_t horizon) {
    ToyModel target(vocab, 1), draft(vocab, 2);
    Speculator run{TreeVerifier{target, rule}, ModelDrafter{draft}, shape};
    return whole_distribution(run, target, kPlain, prompt_for(vocab), horizon).error;
  };
  for (const bool wide : {false, true}) {
    const ThreeTiles tiles(wide);
    CHECK(whole(2, Rejection{}, DistinctPair{.depth = 2}, 3) < 1e-12);
    CHECK(whole(3, Rejection{}, DistinctPair{}, 3) < 1e-12);
    CHECK(whole(2, Rejection{}, IidPair{.depth = 2}, 2) < 1e-12);
    CHECK(whole(2, Traversal{}, DistinctPair{.depth = 2}, 3) < 1e-12);
    CHECK(whole(3, Traversal{}, DistinctPair{}, 3) < 1e-12);
    CHECK(whole(3, Sampling{}, DrawnThenChosen{.pick = 1}, 3) < 1e-12);
  }
}

TEST_CASE("more siblings, more accepted") {
  ToyModel target(4, 1), draft(4, 2);
  const auto mat = [&](auto shape) {
    Speculator run{TreeVerifier{target, Rejection{}}, ModelDrafter{draft}, shape};
    return whole_distribution(run, target, kPlain, prompt_for(4), 1).mat;
  };
  const double one = mat(Chain<Draw::sampled>{.length = 1}), iid = mat(IidPair{}),
               distinct = mat(DistinctPair{}), three = mat(DistinctTriple{});
  CHECK(iid > one + 0.01);
  CHECK(distinct > iid);
  CHECK(three > distinct);
}
