#include <specula/accept/sampling.hpp>

#include <doctest/doctest.h>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("what the proposal holds decides: chosen tokens are matched, drawn ones go through traversal") {
  const ReferenceArithmetic reference;
  Random random(1);
  int differ = 0, deterministic = 0, compared = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const bool draws = i % 2;
    const SamplingParams params = i % 8 < 2 ? SamplingParams{.temperature = 0} : SamplingParams{};
    const Case it =
        random_case(random, 3, params, {.nodes = 2 + random.below(8), .draws = draws, .distinct = draws}, i);
    DenseCoins coins(i), other(i);
    const bool chosen = it.tree.law() == DraftLaw::deterministic;
    const Verdict want =
        chosen ? dense_match(it.dense, it.laws, coins) : dense_traversal(it.dense, it.laws, coins);
    const Verdict not_it =
        chosen ? dense_traversal(it.dense, it.laws, other) : dense_rejection(it.dense, it.laws, other);
    if (coins.margin < 1e-11) continue;
    ++compared;
    const Verdict got = verdict_of(Sampling{}, it, params, i);
    CHECK(got.path == want.path);
    CHECK(got.next == want.next);
    differ += want.path != not_it.path || want.next != not_it.next;
    deterministic += chosen;
  }
  CHECK(compared > 380);
  CHECK(differ > 50);  // so that a wrong dispatch would be seen
  CHECK(deterministic > 100);
  CHECK(deterministic < 300);
}

TEST_CASE("temperature 0 keeps the target's first largest logit, ties included") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(2);
    const SamplingParams greedy{.temperature = 0};
    for (std::uint64_t i = 0; i < 200; ++i) {
      const Case it =
          random_case(random, 5, greedy, {.nodes = 10, .wide = 0.5, .spread = 1}, i);  // spread 1: many ties
      const Verdict want = dense_greedy(it.dense, it.row), got = verdict_of(Sampling{}, it, greedy, i);
      CHECK(got.path == want.path);
      CHECK(got.next == want.next);
    }
  }
}

TEST_CASE("on one path it is block verification, unless nothing of it was drawn") {
  const ReferenceArithmetic reference;
  Random random(3);
  int compared = 0, deterministic = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Case it =
        random_case(random, 4, {}, {.nodes = 2 + random.below(6), .chooses = i % 3 == 0, .wide = 0}, i);
    DenseCoins coins(i);
    const bool chosen = it.tree.law() == DraftLaw::deterministic;
    const Verdict want =
        chosen ? dense_match(it.dense, it.laws, coins) : dense_block(it.dense, it.laws, coins);
    if (coins.margin < 1e-11) continue;
    const Verdict got = verdict_of(Sampling{}, it, {}, i);
    CHECK(got.path == want.path);
    CHECK(got.next == want.next);
    ++compared, deterministic += chosen;
  }
  CHECK(compared > 280);
  CHECK(deterministic > 3);
}

static_assert(Sampling::exact_for(DraftLaw::deterministic) && Sampling::exact_for(DraftLaw::sampled) &&
              Sampling::exact_for(DraftLaw::mixed));
