// SPDX-License-Identifier: MIT
// labels: optimised
// The Greedy rule, against a dense reference implementation.
#include <specula/accept/exact_rules.hpp>
#include <specula/proposal/proposal_builder.hpp>

#include <doctest/doctest.h>

#include <string>

#include "dense_rules.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("greedy: the dense rule's result on random trees, for any parameters and any kind of proposal") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    Random random(1);
    int accepted = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
      const SamplingParams params =
          i % 2 ? SamplingParams{.temperature = 0.5f, .top_k = 2} : SamplingParams{.temperature = 0};
      const Case it = random_case(random, 2 + random.below(i % 10 ? 6 : 900), params,
                                  {.nodes = 1 + random.below(90), .wide = 0.3, .spread = 1.5}, i);
      const VerifyResult want = dense_greedy(it.dense, it.row), got = result_of(Greedy{}, it, params, i);
      CHECK(got.accepted == want.accepted);
      CHECK(got.next_token == want.next_token);
      accepted += got.accepted_count();
    }
    CHECK(accepted > 200);
  }
}

TEST_CASE("ties go to the lowest token, at every position of a row of several tiles") {
  for (const auto isa : every_isa()) {
    const Arithmetic arithmetic(isa);
    ProposalBuilder tree(1300, 1, 0);
    tree.reset(0, 0);
    VerifyWorkspace workspace(1300, 1);
    PhiloxRandom rng(0);
    VerifyResult out;
    for (std::size_t first = 0; first < 1299; first += 13) {
      std::vector<float> row(1300, -2.0f);
      row[first] = row[first + 1] = row[1299] = 3.0f;
      decide_checked(Greedy{}, tree, TargetDistributions({row.data(), 1, 1300, 1300}, {}, workspace), rng,
                     out);
      CHECK(out.next_token == static_cast<Token>(first));
    }
  }
}

TEST_CASE("a bad row is an error that names the node; a row off the path is never read") {
  ProposalBuilder tree(3, 3, 0);
  tree.reset(0, 0);
  tree.choose(0, 1, 1);
  tree.choose(0, 2, 1);
  std::vector<float> rows = {0, 0, 1, /**/ NAN, NAN, NAN, /**/ 1, 0, 0};
  VerifyWorkspace workspace(3, 3);
  PhiloxRandom rng(0);
  VerifyResult out;
  decide_checked(Greedy{}, tree, TargetDistributions({rows.data(), 3, 3, 3}, {}, workspace), rng, out);
  CHECK(out.accepted == std::vector<NodeId>{0, 2});
  CHECK(out.next_token == 0);
  rows[7] = NAN;
  CHECK_THROWS_WITH(
      decide_checked(Greedy{}, tree, TargetDistributions({rows.data(), 3, 3, 3}, {}, workspace), rng, out),
      "the target's row after node 2: a row of logits holds NaN or +infinity at token 1");
}
