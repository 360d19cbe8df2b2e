// SPDX-License-Identifier: MIT
// labels: optimised
// Rejection sampling on the device, against the CPU's rule.
#include <doctest/doctest.h>
#include <specula/cuda/api/verify.cuh>

#include <specula/accept/exact_rules.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using Rule = device::detail::RejectionRule;

namespace {

const auto dense = [](const Case& it, DenseUniforms& uniforms) {
  dense_rejection(it.dense, it.distributions, uniforms);
};
const auto logits = [](const auto& batch) { return batch.logits_draft(); };

}  // namespace

TEST_CASE_TEMPLATE("rejection: results are the CPU's on random ragged trees", Element, float, device::Half,
                   device::BFloat16) {
  require_agreement_on_ragged_trees<Rule, Element>(Rejection{}, dense, logits, 100);
}

TEST_CASE("more than 32 siblings, more than 64 nodes, many tiles") {
  const Agreement wide =
      compare_with_cpu<Rule, float>(Rejection{}, dense, logits, 40, 900, {.nodes = 80, .wide = 0.95}, 1);
  require_agreement(wide);
  const Agreement large =
      compare_with_cpu<Rule, device::BFloat16>(Rejection{}, dense, logits, 12, 9000, {.nodes = 12}, 2);
  require_agreement(large);
}

TEST_CASE("proposals of chosen tokens need no draft rows") {
  const auto none = [](const auto&) { return device::ChosenDraft{}; };
  require_agreement(compare_with_cpu<Rule, float>(Rejection{}, dense, none, 600, 50,
                                                  {.nodes = 20, .draws = false, .distinct = false}, 3));
}
