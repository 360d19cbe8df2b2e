// SPDX-License-Identifier: MIT
// Sampling, which chooses between sample-and-match and traversal. Each rule of the header has a test of its
// own: greedy, sample_and_match, rejection, traversal, block; the verifier that they share: residual,
// target_distributions.
#include <specula/accept/exact_rules.hpp>

#include <doctest/doctest.h>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("Sampling uses sample-and-match for chosen tokens and traversal for drawn ones") {
  const ReferenceArithmetic reference;
  Random random(1);
  int differ = 0, deterministic = 0, compared = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const bool draws = i % 2;
    const SamplingParams params = i % 8 < 2 ? SamplingParams{.temperature = 0} : SamplingParams{};
    const Case it =
        random_case(random, 3, params, {.nodes = 2 + random.below(8), .draws = draws, .distinct = draws}, i);
    DenseUniforms uniforms(i), other(i);
    const bool chosen = it.tree.kind() == ProposalKind::deterministic;
    const VerifyResult want = chosen ? dense_match(it.dense, it.distributions, uniforms)
                                     : dense_traversal(it.dense, it.distributions, uniforms);
    const VerifyResult not_it = chosen ? dense_traversal(it.dense, it.distributions, other)
                                       : dense_rejection(it.dense, it.distributions, other);
    if (uniforms.margin < 1e-11) continue;
    ++compared;
    const VerifyResult got = result_of(Sampling{}, it, params, i);
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
    differ += want.accepted != not_it.accepted || want.next_token != not_it.next_token;
    deterministic += chosen;
  }
  CHECK(compared > 380);
  CHECK(differ > 50);  // so that a wrong choice would change the result
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
      const VerifyResult want = dense_greedy(it.dense, it.row), got = result_of(Sampling{}, it, greedy, i);
      CHECK(got.accepted == want.accepted);
      CHECK(got.next_token == want.next_token);
    }
  }
}

TEST_CASE("on one path Sampling is block verification, unless no token was drawn") {
  const ReferenceArithmetic reference;
  Random random(3);
  int compared = 0, deterministic = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Case it =
        random_case(random, 4, {}, {.nodes = 2 + random.below(6), .chooses = i % 3 == 0, .wide = 0}, i);
    DenseUniforms uniforms(i);
    const bool chosen = it.tree.kind() == ProposalKind::deterministic;
    const VerifyResult want = chosen ? dense_match(it.dense, it.distributions, uniforms)
                                     : dense_block(it.dense, it.distributions, uniforms);
    if (uniforms.margin < 1e-11) continue;
    const VerifyResult got = result_of(Sampling{}, it, {}, i);
    CHECK(got.accepted == want.accepted);
    CHECK(got.next_token == want.next_token);
    ++compared, deterministic += chosen;
  }
  CHECK(compared > 280);
  CHECK(deterministic > 3);
}

static_assert(Sampling::lossless_for(ProposalKind::deterministic) &&
              Sampling::lossless_for(ProposalKind::sampled) && Sampling::lossless_for(ProposalKind::mixed));
