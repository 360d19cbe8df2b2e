// SPDX-License-Identifier: MIT
// labels: threads
// Data races in sampling: every thread is a std::thread.
#include <doctest/doctest.h>
#include <specula/cuda/api/sample.cuh>
#include <specula/distribution/random_source.hpp>

#include <cstdint>
#include <vector>

#include <specula/distribution/row_scan.hpp>

#include "emulated_gpu.hpp"
#include "random.hpp"

using namespace specula_test;
namespace device = specula::cuda;

TEST_CASE("concurrent threads: draws with and without replacement, with and without truncation") {
  Random random(1);
  constexpr int kVocab = 1500, kDraws = 2;
  const std::vector<float> logits = random.row(kVocab, 4);
  const std::int32_t position = 3;
  for (const specula::SamplingParams& params :
       {specula::SamplingParams{.temperature = 0.8f},
        specula::SamplingParams{.temperature = 0.9f, .top_k = 30, .top_p = 0.95f}})
    for (const bool distinct : {false, true}) {
      const std::uint64_t seed = random.bits();
      device::Token token[kDraws] = {-7, -7};
      device::RowStats stats{};
      device::SampleArgs<float> args{};
      args.logits = logits.data();
      args.stride = kVocab;
      args.seed = &seed;
      args.position = &position;
      args.params = &params;
      args.distinct = distinct;
      args.token = token;
      args.stats = &stats;
      const device::detail::ScanSize size{kVocab, 1, 8192};
      emulate({.blocks = 2,
               .threads = 64,
               .shared_bytes = device::detail::sample_bytes<EmulatedCluster>(size, 2, kDraws),
               .engine = Engine::threads},
              [&](EmulatedCluster cluster, int r, unsigned char* shared) {
                device::detail::sample_row(cluster, r, shared, args, size, kDraws);
              });
      CHECK(stats.status == device::Status::ok);
      specula::detail::RowScan scan(kVocab);
      const specula::Distribution distribution = scan.distribution(logits, params);
      specula::PhiloxRandom rng(seed);
      CHECK(token[0] == rng.draw(scan.weights(distribution), {position}));
      if (distinct) CHECK(token[1] != token[0]);
    }
}
