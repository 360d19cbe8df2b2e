// SPDX-License-Identifier: MIT
// labels: optimised
// Greedy verification and sample-and-match on the device, against the CPU's rules.
#include <doctest/doctest.h>
#include <specula/cuda/api/verify_matching.cuh>

#include <specula/accept/exact_rules.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;

namespace {

const auto none = [](const auto&) { return device::ChosenDraft{}; };

}  // namespace

TEST_CASE_TEMPLATE("greedy: results are the CPU's on random ragged trees", Element, float, device::Half,
                   device::BFloat16) {
  const auto no_uniforms = [](const Case&, DenseUniforms&) {};
  require_agreement_on_ragged_trees<device::detail::GreedyRule, Element>(Greedy{}, no_uniforms, none, 500);
  for (const int vocab : {1, 2000}) {
    const Agreement a = compare_with_cpu<device::detail::GreedyRule, Element>(Greedy{}, no_uniforms, none,
                                                                              100, vocab, {.nodes = 20}, 5);
    CHECK(a.differ == 0);
  }
}

TEST_CASE_TEMPLATE("sample-and-match: results are the CPU's on random ragged trees", Element, float,
                   device::Half, device::BFloat16) {
  const auto dense = [](const Case& it, DenseUniforms& uniforms) {
    dense_match(it.dense, it.distributions, uniforms);
  };
  require_agreement_on_ragged_trees<device::detail::SampleAndMatchRule, Element>(SampleAndMatch{}, dense,
                                                                                 none, 300);
  const Agreement several_tiles = compare_with_cpu<device::detail::SampleAndMatchRule, Element>(
      SampleAndMatch{}, dense, none, 80, 1700, {.nodes = 4}, 301);
  require_agreement(several_tiles);
}

TEST_CASE("for which batches all nodes are verified at once") {
  const auto asks = [](int sequences, int nodes, int depth) {
    device::VerifyCapacity c;
    c.sequences = sequences, c.max_nodes = nodes, c.max_depth = depth, c.vocab = 128256;
    return device::detail::asks_all_nodes(c, 2, 132);
  };
  CHECK(asks(1, 64, 6));
  CHECK(asks(4, 64, 6));
  CHECK_FALSE(asks(16, 64, 6));
  CHECK_FALSE(asks(64, 64, 6));
  CHECK(asks(64, 8, 4));
  CHECK_FALSE(asks(1, 64, 0));
}
