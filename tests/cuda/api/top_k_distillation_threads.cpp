// SPDX-License-Identifier: MIT
// labels: threads
// Data races in top_k_distillation(): every thread is a std::thread.
#include <doctest/doctest.h>
#include <specula/cuda/api/top_k_distillation.cuh>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <losses/top_k_distillation.hpp>

#include "emulated_gpu.hpp"
#include "random.hpp"
#include "worst.hpp"

using namespace specula_test;
namespace device = specula::cuda;

TEST_CASE("concurrent threads: a gradient that overwrites the logits, and a row that is refused") {
  Random random(1);
  constexpr int kVocab = 1500;
  for (const bool bad : {false, true}) {
    const std::vector<float> target = random.row(kVocab, 6, 0.5);
    std::vector<float> draft = random.row(kVocab, 6);
    if (bad) draft[700] = -std::numeric_limits<float>::infinity();
    std::vector<double> p(target.begin(), target.end()), q(draft.begin(), draft.end()), want(kVocab);
    specula::TopKDistillation::Loss loss;
    if (!bad)
      loss = specula::TopKDistillation{.k = 5}.row(std::span<const double>(p), std::span<const double>(q),
                                                   std::span<double>(want));
    std::vector<float> losses(2, -7);
    device::Status status = device::Status::bad_tree;
    const device::detail::DistillationArgs<float, float, float> args{
        {target.data(), kVocab, draft.data(), kVocab, draft.data(), kVocab, nullptr, losses.data(), &status},
        {.k = 5},
        kVocab};
    using Row = device::detail::Distillation<EmulatedCluster, float, float, float>;
    emulate(
        {.blocks = 2, .threads = 64, .shared_bytes = Row::shared_bytes(kVocab, 5), .engine = Engine::threads},
        [&](EmulatedCluster cluster, int index, unsigned char* shared) {
          Row(cluster, args, index, shared).run();
        });
    CHECK(status == (bad ? device::Status::infinite_loss : device::Status::ok));
    CHECK(static_cast<double>(losses[0]) == doctest::Approx(loss.cross_entropy).epsilon(2e-6));
    CHECK(static_cast<double>(losses[1]) == doctest::Approx(loss.top_k).epsilon(2e-6));
    double worst = 0;
    for (std::size_t x = 0; x < want.size(); ++x)
      worst = worse(worst, std::abs(static_cast<double>(draft[x]) - want[x]));
    CHECK(worst < 1.1e-6);
  }
}
