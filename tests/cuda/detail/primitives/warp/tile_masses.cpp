// SPDX-License-Identifier: MIT
// Draws inside a tile: the ends of the uniform draws, and weights of which many are 0.
#include <doctest/doctest.h>
#include <specula/cuda/detail/primitives/warp/tile_masses.cuh>

#include <vector>

#include "emulated_gpu.hpp"
#include "random.hpp"

using namespace specula_test;
using namespace specula::cuda::detail;

namespace {

std::int32_t drawn(const std::vector<float>& weights, double uniform) {
  std::int32_t out = -7;
  emulate({.threads = 32}, [&](EmulatedCluster cluster, int, unsigned char*) {
    const std::int32_t token = draw_inside(cluster.block().warp(), 3, uniform, [&](int first, float(&w)[4]) {
      for (int e = 0; e < 4; ++e) w[e] = weights[static_cast<std::size_t>(first - 3 * kTile + e)];
    });
    if (cluster.block().rank() == 0) out = token;
  });
  return out;
}

}  // namespace

TEST_CASE(
    "the token that a uniform draw picks; beyond all of them, as rounding may leave it, the last of weight") {
  Random random(151);
  for (int round = 0; round < 40; ++round) {
    std::vector<float> weights(kTile);
    int first = -1, last = -1;
    double total = 0;
    for (int i = 0; i < kTile; ++i)
      if (random.bernoulli(round % 4 == 0 ? 0.01 : 0.5)) {
        weights[static_cast<std::size_t>(i)] = static_cast<float>(1 + random.below(8));
        total += static_cast<double>(weights[static_cast<std::size_t>(i)]);
        if (first < 0) first = i;
        last = i;
      }
    if (last < 0) {
      CHECK(drawn(weights, 0.5) == -1);
      continue;
    }
    CHECK(drawn(weights, 0) == 3 * kTile + first);
    CHECK(drawn(weights, 1) == 3 * kTile + last);
    for (int i = 0; i < 8; ++i) {
      const double uniform = random.uniform();
      double seen = 0;
      int want = -1;
      for (int t = 0; want < 0; ++t)
        if ((seen += static_cast<double>(weights[static_cast<std::size_t>(t)])) > uniform * total) want = t;
      CHECK(drawn(weights, uniform) == 3 * kTile + want);
    }
  }
}
