// labels: slow
#include <doctest/doctest.h>
#include <specula/cuda/device/verify_greedy.cuh>
#include <specula/cuda/device/verify_sample_and_match.cuh>

#include <specula/accept/greedy.hpp>
#include <specula/accept/sample_and_match.hpp>

#include "device_agreement.hpp"

using namespace specula;
using namespace specula_test;

namespace {

const auto none = [](const auto&) { return device::ChosenDraft{}; };

}  // namespace

TEST_CASE_TEMPLATE("greedy: verdicts are the CPU's on random ragged trees", Element, float, device::Half,
                   device::BFloat16) {
  for (const int vocab : {1, 3, 600, 2000}) {
    const Agreement a = compare_with_cpu<device::detail::GreedyRule, Element>(
        Greedy{}, [](const Case&, DenseCoins&) {}, none, 250, vocab, {.nodes = 20}, 5);
    CHECK(a.trees == 250);
    CHECK(a.differ == 0);
  }
}

TEST_CASE_TEMPLATE("sample-and-match: verdicts are the CPU's on random ragged trees", Element, float,
                   device::Half, device::BFloat16) {
  Agreement all;
  for (const int vocab : {3, 40, 600}) {
    const Agreement a = compare_with_cpu<device::detail::SampleAndMatchRule, Element>(
        SampleAndMatch{}, [](const Case& it, DenseCoins& coins) { dense_match(it.dense, it.laws, coins); },
        none, vocab == 600 ? 400 : 1500, vocab, {.nodes = 20}, 300 + static_cast<std::uint64_t>(vocab));
    all.trees += a.trees, all.differ += a.differ, all.unexplained += a.unexplained;
  }
  CHECK(all.trees == 3400);
  require_agreement(all);
}
