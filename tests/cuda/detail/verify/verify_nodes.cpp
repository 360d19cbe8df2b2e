// SPDX-License-Identifier: MIT
// labels: optimised
// Verification of all nodes of a tree at once: results are those of following the path, and the workspace is
// ready for the next launch.
#include <doctest/doctest.h>
#include <specula/cuda/detail/verify/rules.cuh>
#include <specula/cuda/detail/verify/verify_nodes.cuh>

#include <algorithm>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using namespace specula::cuda::detail;
using device::Status;

namespace {

/// A workspace that is kept for any number of batches, as in a program.
struct Kept {
  std::vector<NodeChoice> choices = std::vector<NodeChoice>(4000, NodeChoice{77, Status::overflow, 77});
  std::vector<std::int32_t> arrived = std::vector<std::int32_t>(200);
};

template <class Rule, class Element>
std::vector<DeviceResult> all_nodes(DeviceBatch<Element>& batch,
                                    const VerifyArgs<Element, device::ChosenDraft>& verify, Kept& kept,
                                    int blocks, int threads, std::uint64_t seed,
                                    Engine engine = Engine::fibers) {
  NodesArgs<Element> args{verify, kept.choices.data(), kept.arrived.data()};
  args.verify.scan.rows = 1;
  args.verify.scan.ring_bytes = seed % 2 ? 8192 : 4096;
  emulate({.clusters = batch.sequences() * verify.max_nodes,
           .blocks = blocks,
           .threads = threads,
           .shared_bytes = nodes_bytes<EmulatedCluster>(args.verify.scan, verify.max_nodes, threads / 32),
           .seed = seed,
           .engine = engine},
          [&](EmulatedCluster cluster, int index, unsigned char* shared) {
            verify_node<Rule>(cluster, args, index, shared);
          });
  CHECK(std::all_of(kept.arrived.begin(), kept.arrived.end(), [](std::int32_t a) { return a == 0; }));
  return batch.results();
}

template <class Rule, class Element>
void check(int vocab, int trees, std::uint64_t seed) {
  Random random(seed);
  const auto settings = device_settings();
  Kept kept;
  for (int round = 0; round < 3; ++round) {
    DeviceBatch<Element> batch(vocab, vocab + random.below(9), random.below(2));
    for (int i = 0; i < trees; ++i) {
      Mix mix{.nodes = 1 + random.below(14)};
      mix.round = rounding(Element{});
      const SamplingParams p = settings[static_cast<std::size_t>(random.below(7))];
      batch.add(random_case(random, vocab, p, mix, random.bits()), p, random.bits());
    }
    // Padding and nodes below it; bad trees and parameters beside valid ones.
    for (std::size_t n = 0; n < batch.token.size(); ++n)
      if (batch.parent[n] >= 0 && random.bernoulli(0.1)) batch.token[n] = -1;
    if (round > 0 && batch.begin[1] > 1) batch.parent[static_cast<std::size_t>(batch.begin[1]) - 1] = 1 << 20;
    if (round > 1 && trees > 1) batch.params[1].temperature = -1;
    const auto args = batch.args(device::ChosenDraft{});
    const auto walked = emulate_verify<Rule>(batch, args, 2, 64, random.bits());
    const std::vector<float> log_probs = batch.out_log_prob;
    batch.args(device::ChosenDraft{});  // poisons the outputs
    CHECK(all_nodes<Rule>(batch, args, kept, 1 + random.below(3), 32 * (1 + random.below(3)),
                          random.bits()) == walked);
    CHECK(batch.out_log_prob == log_probs);
  }
}

}  // namespace

TEST_CASE("all nodes at once: the results of following the path, for several launches on one workspace") {
  check<SampleAndMatchRule, float>(40, 12, 1);
  check<SampleAndMatchRule, device::BFloat16>(600, 6, 2);
  check<SampleAndMatchRule, device::Half>(3, 12, 3);
  check<GreedyRule, float>(600, 6, 4);
  check<GreedyRule, device::BFloat16>(40, 12, 5);
}

TEST_CASE("a bad row off the path does no harm; on the path it sets the sequence's status") {
  DeviceBatch<float> b(4);
  b.begin = {0, 3}, b.position = {4}, b.seed = {1}, b.params = {{0, 0, 1, 0}};
  b.token = {0, 1, 2}, b.parent = {-1, 0, 0};
  b.max_nodes = 3, b.width = 3;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> two{0, 0, 9, 0}, bad(4, nan);
  b.add_row(b.target, two.data()), b.add_row(b.target, bad.data()), b.add_row(b.target, two.data());
  Kept kept;
  const auto good = all_nodes<GreedyRule>(b, b.args(device::ChosenDraft{}), kept, 1, 64, 1)[0];
  CHECK(good.status == Status::ok);
  CHECK(good.tokens == std::vector<Token>{2, 2});
  b.token = {0, 2, 1};
  CHECK(all_nodes<SampleAndMatchRule>(b, b.args(device::ChosenDraft{}), kept, 2, 64, 2)[0].status ==
        Status::not_a_number);
}

TEST_CASE("padding and nodes below it have no row in a map") {
  DeviceBatch<float> b(4);
  b.begin = {0, 4}, b.position = {4}, b.seed = {1}, b.params = {{}};
  b.token = {0, -1, 2, 1}, b.parent = {-1, 0, 0, 1};
  b.max_nodes = 4, b.width = 3;
  const std::vector<float> two{0, 0, 90, 0};
  b.add_row(b.target, two.data()), b.add_row(b.target, two.data());
  const std::int32_t map[] = {1, 1 << 30, 0, -(1 << 30)};
  auto args = b.args(device::ChosenDraft{});
  args.target.row_of_node = map;
  Kept kept;
  CHECK(all_nodes<SampleAndMatchRule>(b, args, kept, 1, 64, 1)[0].tokens == std::vector<Token>{2, 2});
}
