// SPDX-License-Identifier: MIT
// labels: optimised
// Traversal and block verification on the device, against the CPU's rules.
#include <doctest/doctest.h>
#include <specula/cuda/api/verify.cuh>

#include <specula/accept/exact_rules.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using Rule = device::detail::TraversalRule;

namespace {

const auto dense = [](const Case& it, DenseUniforms& uniforms) {
  dense_traversal(it.dense, it.distributions, uniforms);
};
const auto logits = [](const auto& batch) { return batch.logits_draft(); };

}  // namespace

TEST_CASE_TEMPLATE("traversal: results are the CPU's on random ragged trees", Element, float, device::Half,
                   device::BFloat16) {
  require_agreement_on_ragged_trees<Rule, Element>(Traversal{}, dense, logits, 200);
}

TEST_CASE("more than 32 siblings, more than 64 nodes, many tiles") {
  require_agreement(
      compare_with_cpu<Rule, float>(Traversal{}, dense, logits, 40, 900, {.nodes = 80, .wide = 0.95}, 1));
  require_agreement(
      compare_with_cpu<Rule, device::BFloat16>(Traversal{}, dense, logits, 12, 9000, {.nodes = 12}, 2));
}

TEST_CASE_TEMPLATE("on chains traversal is block verification", Element, float, device::Half,
                   device::BFloat16) {
  require_agreement_on_ragged_trees<Rule, Element>(
      Block{},
      [](const Case& it, DenseUniforms& uniforms) { dense_block(it.dense, it.distributions, uniforms); },
      logits, 400, {.nodes = 9, .chooses = false, .wide = 0});
}

TEST_CASE("chains need no parents") {
  Random random(4);
  for (int round = 0; round < 5; ++round) {
    DeviceBatch<float> batch(70);
    for (int i = 0; i < 20; ++i) {
      const SamplingParams p = device_settings()[static_cast<std::size_t>(random.below(7))];
      const Case it = random_case(random, 70, p, {.nodes = 1 + random.below(9), .chooses = false, .wide = 0},
                                  random.bits());
      REQUIRE(it.tree.is_chain());
      batch.add(it, p, random.bits());
    }
    auto args = batch.args(batch.logits_draft());
    const auto with = emulate_verify<Rule>(batch, args, 2);
    args = batch.args(batch.logits_draft());
    args.trees.parent = nullptr;
    CHECK(emulate_verify<Rule>(batch, args, 1) == with);
  }
}
