// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of pipelines whose draft predicts some of the target's tokens only (a draft
// vocabulary), against the target's: its rows are minus infinity elsewhere, and those tokens come from the
// target alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "every_shape.hpp"
#include "exact_distribution.hpp"
#include "hash_gram.hpp"
#include "one_rule.hpp"

using namespace specula;
using namespace specula_test;

namespace {

/// A toy model that predicts every token but the first, `left_out` in all; it reads all of them.
class PartialModel : public ToyModel {
 public:
  PartialModel(std::int32_t tokens, std::uint64_t seed, std::int32_t left_out)
      : ToyModel(tokens, seed), first_(toy_token(left_out, tokens)) {}

  LogitsView extend(Tokens tokens, Nodes parents) {
    const LogitsView all = ToyModel::extend(tokens, parents);
    rows_.assign(all.data, all.data + static_cast<std::ptrdiff_t>(all.rows) * all.vocab);
    for (std::int32_t r = 0; r < all.rows; ++r)
      std::fill_n(rows_.begin() + static_cast<std::ptrdiff_t>(r) * all.vocab, first_,
                  -std::numeric_limits<float>::infinity());
    return {rows_.data(), all.rows, all.vocab, all.vocab};
  }

 private:
  Token first_;
  std::vector<float> rows_;
};

const SamplingParams kNucleus{.temperature = 1.3f, .top_p = 0.7f}, kMinP{.temperature = 0.7f, .min_p = 0.2f},
    kMoreThanDrafted{.top_k = 3};

template <class Shape>
EmittedDistribution whole(std::int32_t vocab, std::int32_t left_out, const OneRule& rule, Shape shape,
                          const SamplingParams& params, std::size_t horizon) {
  ToyModel target(vocab, 1);
  PartialModel draft(vocab, 2, left_out);
  Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
  return whole_distribution(run, target, params, prompt_for(vocab), horizon);
}

/// All draft vocabularies of at least one token and fewer than `vocab`, in one tile and in three.
template <class Shape>
double worst(std::int32_t vocab, const OneRule& rule, Shape shape, const SamplingParams& params,
             std::size_t horizon) {
  double error = 0;
  for (const bool wide : {false, true}) {
    const ThreeTiles tiles(wide);
    for (std::int32_t left_out = 1; left_out < vocab; ++left_out)
      error = std::max(error, whole(vocab, left_out, rule, shape, params, wide ? 2 : horizon).error);
  }
  return error;
}

using SampledChain = Chain<Draw::sampled>;
using Distinct = SampledTree<ProposalKind::sampled_distinct>;

}  // namespace

TEST_CASE("every shape, by every lossless rule") {
  for_every_shape([](const auto& shape, Enumerable) {
    for_every_rule<std::remove_cvref_t<decltype(shape)>::kind>([&](const OneRule& rule) {
      for (const SamplingParams& params : {kPlain, kNucleus}) {
        CAPTURE(params.temperature);
        CHECK(worst(3, rule, shape, params, 2) < 1e-12);
      }
    });
  });
}

TEST_CASE("more truncations, and more siblings than the draft has tokens") {
  for (const SamplingParams& params : {kPlain, kWarm, kNucleus, kMinP, kMoreThanDrafted}) {
    CAPTURE(params.temperature);
    CHECK(worst(4, Rejection{}, SampledChain{.length = 2}, params, 2) < 1e-12);
    CHECK(worst(3, Block{}, SampledChain{.length = 2}, params, 2) < 1e-12);
    CHECK(worst(3, Rejection{}, Distinct{.widths = {3}}, params, 2) < 1e-12);
  }
}

TEST_CASE("temperature 0: greedy decoding's text") {
  for (const SamplingParams& params : {kGreedy, SamplingParams{.temperature = 0, .top_k = 2}}) {
    CHECK(worst(4, Greedy{}, Chain<>{.length = 3}, params, 6) < 1e-12);
    CHECK(worst(4, Sampling{}, SampledChain{.length = 3}, params, 6) < 1e-12);
    CHECK(worst(4, Sampling{}, DynamicTree{}, params, 6) < 1e-12);
    CHECK(worst(4, Rejection{}, Distinct{.widths = {2, 2}}, params, 4) < 1e-12);
  }
}

TEST_CASE("cascades: the draft reviews tokens that it cannot predict, and a smaller draft reviews its own") {
  for (const double lenience : {1.0, 3.0})
    for (const SamplingParams& params : {kPlain, kWarm}) {
      CAPTURE(lenience);
      const Cascade<2, Draw::sampled> cascade{.limits = {{{2, 1}, {0, 1}}}, .lenience = lenience};
      const auto error = [&](auto first, auto second) {
        ToyModel target(3, 1);
        Speculator run{TreeVerifier{target, Rejection{}, params}, Stack{first, second}, cascade};
        return whole_distribution(run, target, params, prompt_for(3), 2).error;
      };
      ToyModel all(3, 3);
      PartialModel some(3, 2, 1), fewer(3, 4, 2);
      CHECK(error(ModelDrafter{some}, ModelDrafter{all}) < 1e-12);
      CHECK(error(ModelDrafter{all}, ModelDrafter{some}) < 1e-12);
      CHECK(error(ModelDrafter{some}, ModelDrafter{fewer}) < 1e-12);
      CHECK(error(ModelDrafter{fewer}, HashGram(3, 1, 0.0)) < 1e-12);
    }
}

TEST_CASE("a token that the draft does not predict is never drafted, and accepted tokens are those it does") {
  ToyModel target(3, 1);
  PartialModel draft(3, 2, 2);
  Speculator run{TreeVerifier{target, Sampling{}}, ModelDrafter{draft}, SampledChain{.length = 3}};
  PhiloxRandom rng(1);
  std::map<Token, int> emitted;
  for (int text = 0; text < 20; ++text) {
    run.start(prompt_for(3));
    for (int round = 0; round < 10; ++round) {
      for (const Token token : run.step(rng)) ++emitted[token];
      for (NodeId node = 1; node < run.proposal().size(); ++node) CHECK(run.proposal().token(node) == 2);
    }
  }
  CHECK(run.draft_error().empty());
  CHECK(emitted[0] > 20);
  CHECK(emitted[1] > 20);
}

TEST_CASE("a larger draft vocabulary accepts more") {
  const auto mat = [](std::int32_t left_out) {
    return whole(4, left_out, Rejection{}, SampledChain{.length = 1}, kPlain, 2).mat;
  };
  CHECK(mat(3) > 1.01);
  CHECK(mat(2) > mat(3));
  CHECK(mat(1) > mat(2));
}

// The last, since what runs after vector code that is compiled with -O1 is slow.
TEST_CASE("the kernels of every instruction set, to their rounding") {
  const ThreeTiles wide;
  for (const Isa isa : every_isa())
    for (const SamplingParams& params : {kPlain, kWarm, kNucleus, kMinP})
      for (std::int32_t left_out = 1; left_out < 4; ++left_out) {
        ToyModel target(4, 1);
        PartialModel draft(4, 2, left_out);
        const auto error = [&](const OneRule& rule, auto shape) {
          Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
          return composed_distribution(run, target, params, prompt_for(4), 2, isa).error;
        };
        CHECK(error(Rejection{}, SampledChain{.length = 2}) < 1e-6);
        CHECK(error(Block{}, SampledChain{.length = 2}) < 1e-6);
      }
}
