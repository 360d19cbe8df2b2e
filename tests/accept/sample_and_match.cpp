// SPDX-License-Identifier: MIT
// SampleAndMatch: the target's own samples, matched with the draft tokens.
#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <doctest/doctest.h>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("same uniform draws, same verification result as the dense rule, on random trees") {
  const SamplingParams settings[] = {
      {}, {.temperature = 0.7f, .top_k = 3}, {.temperature = 1.4f, .top_p = 0.8f}, {.temperature = 0}};
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    int compared = 0, accepted = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const SamplingParams& params = settings[i % 4];
      const Case it = random_case(random, 2 + random.below(7), params, {.nodes = 1 + random.below(20)}, i);
      DenseUniforms uniforms(1000 + i);
      const VerifyResult want = dense_match(it.dense, it.distributions, uniforms);
      if (isa != Isa::reference && uniforms.margin < 1e-5) continue;
      const VerifyResult got = result_of(SampleAndMatch{}, it, params, 1000 + i);
      CHECK(got.accepted == want.accepted);
      CHECK(got.next_token == want.next_token);
      ++compared, accepted += got.accepted_count();
    }
    CHECK(compared > 390);
    CHECK(accepted > 100);
  }
}

TEST_CASE("sample-and-match gives the text of plain sampling with the same seed, for any proposal") {
  Random random(2);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Case it = random_case(random, 4, {}, {.nodes = 12}, i);
    const VerifyResult result = result_of(SampleAndMatch{}, it, {}, i);
    PhiloxRandom rng(i);
    detail::RowScan scan(4);
    for (std::size_t n = 0; n < result.accepted.size(); ++n) {
      const NodeId at = result.accepted[n];
      const Distribution distribution = scan.distribution(it.row[static_cast<std::size_t>(at)], {});
      const Token sampled = rng.draw(scan.weights(distribution),
                                     RandomKey{it.tree.position(at) + 1, 0, RandomStream::sample, 0});
      CHECK(sampled ==
            (n + 1 < result.accepted.size() ? it.tree.token(result.accepted[n + 1]) : result.next_token));
    }
  }
}

TEST_CASE("of two children with the same token, the first is accepted") {
  ProposalBuilder tree(3, 4, 0);
  tree.reset(0, 5);
  tree.choose(0, 1, 1);
  tree.choose(0, 1, 1);
  tree.choose(2, 1, 1);
  const std::vector<float> rows = {0, 9, 0, /**/ 9, 0, 0, /**/ 0, 9, 0, /**/ 0, 0, 9};
  VerifyWorkspace workspace(3, 4);
  PhiloxRandom rng(1);
  VerifyResult out;
  decide_checked(SampleAndMatch{}, tree,
                 TargetDistributions({rows.data(), 4, 3, 3}, {.temperature = 0}, workspace), rng, out);
  CHECK(out.accepted == std::vector<NodeId>{0, 1});
  CHECK(out.next_token == 0);
}

static_assert(SampleAndMatch::lossless_for(ProposalKind::deterministic) &&
              SampleAndMatch::lossless_for(ProposalKind::mixed));
