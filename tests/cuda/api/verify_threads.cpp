// SPDX-License-Identifier: MIT
// labels: threads
// Data races in the verification kernels: every thread is a std::thread, so that the thread sanitizer sees
// accesses that no barrier orders.
#include <doctest/doctest.h>
#include <specula/cuda/api/verify.cuh>

#include <specula/accept/exact_rules.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("concurrent threads: the CPU's results") {
  Random random(31);
  DeviceBatch<float> batch(600);
  std::vector<DeviceResult> rejection, traversal, matching;
  const SamplingParams settings[] = {{.temperature = 0.8f},
                                     {.temperature = 0.7f, .top_k = 20, .top_p = 0.9f}};
  for (const SamplingParams& p : settings) {
    const Case it = random_case(random, 600, p, {.nodes = 5, .wide = 0.6}, random.bits());
    batch.add(it, p, 77);
    rejection.push_back(as_device(result_of(Rejection{}, it, p, 77), it.tree));
    traversal.push_back(as_device(result_of(Traversal{}, it, p, 77), it.tree));
    matching.push_back(as_device(result_of(SampleAndMatch{}, it, p, 77), it.tree));
  }
  CHECK(emulate_verify<device::detail::RejectionRule>(batch, batch.args(batch.logits_draft()), 2, 64, 1,
                                                      Engine::threads) == rejection);
  CHECK(emulate_verify<device::detail::TraversalRule>(batch, batch.args(batch.logits_draft()), 1, 64, 1,
                                                      Engine::threads) == traversal);
  CHECK(emulate_verify<device::detail::SampleAndMatchRule>(batch, batch.args(batch.logits_draft()), 1, 64, 1,
                                                           Engine::threads) == matching);
}
