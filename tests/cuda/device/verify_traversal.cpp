// labels: slow
#include <doctest/doctest.h>
#include <specula/cuda/device/verify_block.cuh>
#include <specula/cuda/device/verify_traversal.cuh>

#include <specula/accept/block.hpp>
#include <specula/accept/traversal.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;
using Rule = device::detail::TraversalRule;

namespace {

const auto dense = [](const Case& it, DenseCoins& coins) { dense_traversal(it.dense, it.laws, coins); };
const auto logits = [](const auto& batch) { return batch.logits_draft(); };

}  // namespace

TEST_CASE_TEMPLATE("verdicts are the CPU's on random ragged trees", Element, float, device::Half,
                   device::BFloat16) {
  Agreement all;
  for (const int vocab : {3, 40, 600}) {
    const Agreement a =
        compare_with_cpu<Rule, Element>(Traversal{}, dense, logits, vocab == 600 ? 400 : 1500, vocab,
                                        {.nodes = 20}, 200 + static_cast<std::uint64_t>(vocab));
    all.trees += a.trees, all.differ += a.differ, all.unexplained += a.unexplained;
  }
  CHECK(all.trees == 3400);
  require_agreement(all);
}

TEST_CASE("more than 32 siblings, more than 64 nodes, many tiles") {
  require_agreement(
      compare_with_cpu<Rule, float>(Traversal{}, dense, logits, 40, 900, {.nodes = 80, .wide = 0.95}, 1));
  require_agreement(
      compare_with_cpu<Rule, device::BFloat16>(Traversal{}, dense, logits, 12, 9000, {.nodes = 12}, 2));
}

TEST_CASE("on chains it is block verification, with and without parents") {
  Random random(4);
  int differ = 0, unexplained = 0, trees = 0;
  for (int round = 0; round < 40; ++round) {
    DeviceBatch<float> batch(70);
    std::vector<DeviceVerdict> want;
    std::vector<double> margins;
    for (int i = 0; i < 20; ++i, ++trees) {
      const SamplingParams p = device_settings()[static_cast<std::size_t>(random.below(7))];
      const Case it = random_case(random, 70, p, {.nodes = 1 + random.below(9), .chooses = false, .wide = 0},
                                  random.bits());
      REQUIRE(it.tree.is_chain());
      const std::uint64_t coins = random.bits();
      batch.add(it, p, coins);
      want.push_back(as_device(verdict_of(Block{}, it, p, coins), it.tree));
      DenseCoins margin(coins);
      dense_block(it.dense, it.laws, margin);
      margins.push_back(margin.margin);
    }
    auto args = batch.args(batch.logits_draft());
    const auto tree = emulate_verify<Rule>(batch, args, 2);
    args = batch.args(batch.logits_draft());
    args.trees.parent = nullptr;
    const auto chain = emulate_verify<Rule>(batch, args, 1);
    CHECK(chain == tree);
    for (std::size_t i = 0; i < want.size(); ++i)
      if (chain[i] != want[i]) ++differ, unexplained += margins[i] > 1e-5;
  }
  require_agreement({trees, differ, unexplained});
}
