// SPDX-License-Identifier: MIT
// labels: long optimised
// The exact distribution of every rule over chains, several rounds, against the target's.
#include <doctest/doctest.h>

#include <string>

#include "exact_distribution.hpp"
#include "one_rule.hpp"

using namespace specula;
using namespace specula_test;

namespace {

const SamplingParams kNucleus{.temperature = 1.3f, .top_p = 0.7f};
const SamplingParams kMinP{.temperature = 0.7f, .min_p = 0.2f};

template <class Shape>
EmittedDistribution distribution_of(std::int32_t vocab, const OneRule& rule, Shape shape,
                                    const SamplingParams& params, std::size_t horizon,
                                    RandomKeying keying = RandomKeying::key, std::uint64_t seed = 1) {
  ToyModel target(vocab, seed), draft(vocab, seed + 1);
  Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
  return whole_distribution(run, target, params, prompt_for(vocab), horizon, keying);
}

template <class Shape>
EmittedDistribution composed(std::int32_t vocab, const OneRule& rule, Shape shape,
                             const SamplingParams& params, std::size_t horizon, std::uint64_t seed = 1) {
  ToyModel target(vocab, seed), draft(vocab, seed + 1);
  Speculator run{TreeVerifier{target, rule, params}, ModelDrafter{draft}, shape};
  return composed_distribution(run, target, params, prompt_for(vocab), horizon);
}

using GreedyChain = Chain<Draw::greedy>;
using SampledChain = Chain<Draw::sampled>;

}  // namespace

TEST_CASE("whole pipelines keep the target's distribution over several rounds, in one tile and in three") {
  for (const bool wide : {false, true}) {
    const ThreeTiles tiles(wide);
    for (const SamplingParams& params : {kPlain, kWarm, kNucleus, kMinP}) {
      CAPTURE(params.temperature);
      CHECK(distribution_of(3, SampleAndMatch{}, GreedyChain{.length = 2}, params, 4).error < 1e-12);
      CHECK(distribution_of(3, SampleAndMatch{}, SampledChain{.length = 2}, params, 3).error < 1e-12);
      CHECK(distribution_of(3, Rejection{}, GreedyChain{.length = 2}, params, 4).error < 1e-12);
      CHECK(distribution_of(3, Rejection{}, SampledChain{.length = 2}, params, 3).error < 1e-12);
      CHECK(distribution_of(3, Traversal{}, GreedyChain{.length = 2}, params, 4).error < 1e-12);
      CHECK(distribution_of(3, Sampling{}, SampledChain{.length = 2}, params, 3).error < 1e-12);
      CHECK(distribution_of(3, Sampling{}, GreedyChain{.length = 2}, params, 4).error < 1e-12);
    }
    CHECK(distribution_of(2, Rejection{}, SampledChain{.length = 3}, kPlain, 4).error < 1e-12);
    CHECK(distribution_of(2, Rejection{}, SampledChain{.length = 3, .exit_below = 0.5f}, kPlain, 4).error <
          1e-12);
    CHECK(distribution_of(2, Block{}, SampledChain{.length = 3}, kPlain, 3).error < 1e-12);
    CHECK(distribution_of(2, Traversal{}, SampledChain{.length = 3, .exit_below = 0.5f}, kPlain, 4).error <
          1e-12);
  }
}

TEST_CASE("longer chains and larger vocabularies, composed from rounds") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    const ThreeTiles tiles(seed == 4);
    CHECK(composed(4, Rejection{}, SampledChain{.length = 3}, kPlain, 3, seed).error < 1e-12);
    CHECK(composed(3, Rejection{}, SampledChain{.length = 4}, kWarm, 4, seed).error < 1e-12);
    CHECK(composed(3, Sampling{}, SampledChain{.length = 4, .exit_below = 0.4f}, kPlain, 4, seed).error <
          1e-12);
    CHECK(composed(4, Traversal{}, SampledChain{.length = 3}, kNucleus, 3, seed).error < 1e-12);
    CHECK(composed(3, Block{}, SampledChain{.length = 4}, kWarm, 4, seed).error < 1e-12);
    CHECK(composed(3, Block{}, SampledChain{.length = 4}, kMinP, 4, seed).error < 1e-12);
    CHECK(composed(4, Traversal{}, GreedyChain{.length = 4}, kPlain, 4, seed).error < 1e-12);
    CHECK(composed(4, SampleAndMatch{}, SampledChain{.length = 3}, kNucleus, 3, seed).error < 1e-12);
    CHECK(composed(4, Rejection{}, GreedyChain{.length = 4}, kPlain, 4, seed).error < 1e-12);
  }
}

TEST_CASE("greedy keeps greedy decoding's text, and a vocabulary of one token works") {
  const SamplingParams greedy{.temperature = 0.0f};
  for (const bool wide : {false, true}) {
    const ThreeTiles tiles(wide);
    CHECK(distribution_of(3, Greedy{}, SampledChain{.length = 3}, greedy, 4).error < 1e-12);
    CHECK(distribution_of(3, Greedy{}, GreedyChain{.length = 3}, greedy, 4).error < 1e-12);
    CHECK(distribution_of(3, Sampling{}, SampledChain{.length = 3}, greedy, 4).error < 1e-12);
    CHECK(distribution_of(3, Rejection{}, GreedyChain{.length = 3}, greedy, 4).error < 1e-12);
    CHECK(distribution_of(3, Traversal{}, SampledChain{.length = 3}, greedy, 4).error < 1e-12);
    CHECK(distribution_of(3, Block{}, SampledChain{.length = 3}, greedy, 4).error < 1e-12);
  }
  CHECK(distribution_of(1, Rejection{}, SampledChain{.length = 3}, kPlain, 4).error < 1e-12);
  CHECK(distribution_of(1, Block{}, SampledChain{.length = 3}, kPlain, 4).error < 1e-12);
  CHECK(distribution_of(1, SampleAndMatch{}, GreedyChain{.length = 0}, kPlain, 4).error < 1e-12);
}

TEST_CASE("draft tokens pay: rejection accepts some, and more when the draft is the target") {
  const EmittedDistribution other = distribution_of(3, Rejection{}, SampledChain{.length = 2}, kPlain, 3);
  CHECK(other.mat > 1.3);
  ToyModel target(3, 1), twin(3, 1);
  Speculator run{TreeVerifier{target, Rejection{}}, ModelDrafter{twin}, SampledChain{.length = 2}};
  CHECK(whole_distribution(run, target, kPlain, prompt_for(3), 3).mat == doctest::Approx(3.0).epsilon(1e-12));
  Speculator block{TreeVerifier{target, Block{}}, ModelDrafter{twin}, SampledChain{.length = 2}};
  CHECK(whole_distribution(block, target, kPlain, prompt_for(3), 3).mat ==
        doctest::Approx(3.0).epsilon(1e-12));
}

TEST_CASE("lenience changes the distribution of the text") {
  CHECK(distribution_of(3, accept_lossy(Lenient{3.0}), SampledChain{.length = 2}, kPlain, 3).error > 0.01);
  CHECK(distribution_of(3, accept_lossy(Lenient{1.0}), SampledChain{.length = 2}, kPlain, 3).error < 1e-12);
  CHECK(distribution_of(3, accept_lossy(Lenient{3.0}), GreedyChain{.length = 2},
                        SamplingParams{.temperature = 0}, 3)
            .error > 0.5);
}

TEST_CASE("rows of a large offset keep the target's distribution, on every instruction set") {
  struct Offset {
    float offset, scale, temperature;
  };
  // The spacing of logits is that of floats: 1 at 1e7, 64 at 1e9. Beyond, unequal logits are far apart.
  for (const Offset at :
       {Offset{1e7f, 2, 1}, Offset{-1e9f, 150, 100}, Offset{1e25f, 3e18f, 1}, Offset{-1e38f, 1e31f, 1}})
    for (const specula::Isa isa : every_isa()) {
      CAPTURE(at.offset);
      CAPTURE(static_cast<int>(isa));
      ToyModel target(3, 1, at.scale), draft(3, 2, at.scale);
      target.offset = draft.offset = at.offset;
      const SamplingParams params{.temperature = at.temperature};
      const double allowed = isa == specula::Isa::reference ? 1e-12 : 1e-6;
      Speculator rejection{TreeVerifier{target, Rejection{}, params}, ModelDrafter{draft},
                           SampledChain{.length = 2}};
      CHECK(composed_distribution(rejection, target, params, prompt_for(3), 2, isa).error < allowed);
      Speculator block{TreeVerifier{target, Block{}, params}, ModelDrafter{draft}, SampledChain{.length = 2}};
      CHECK(composed_distribution(block, target, params, prompt_for(3), 2, isa).error < allowed);
    }
}

TEST_CASE("three tiles, on every instruction set") {
  const ThreeTiles tiles;
  for (const specula::Isa isa : every_isa()) {
    CAPTURE(static_cast<int>(isa));
    ToyModel target(3, 1), draft(3, 2);
    const auto error = [&](const OneRule& rule) {
      Speculator run{TreeVerifier{target, rule}, ModelDrafter{draft}, SampledChain{.length = 2}};
      return composed_distribution(run, target, kPlain, prompt_for(3), 2, isa).error;
    };
    const double allowed = isa == specula::Isa::reference ? 1e-12 : 1e-6;
    CHECK(error(SampleAndMatch{}) < allowed);
    CHECK(error(Rejection{}) < allowed);
    CHECK(error(Block{}) < allowed);
  }
}
