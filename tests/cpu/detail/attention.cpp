// SPDX-License-Identifier: MIT
// The attention block of a layer, against plain loops, and the keys and values that it stores.
#include <specula/cpu/detail/attention.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include "one_layer.hpp"

using namespace specula::cpu;

TEST_CASE("a layer whose MLP adds nothing is its attention: tokens see their ancestors and themselves") {
  for (const float scores : specula_test::kScores) {
    CAPTURE(scores);
    specula_test::OneLayer layer(specula_test::OneLayer::small(), {}, scores);
    LayerWeights<double>& weights = layer.weights.layers[0];
    weights.mlp.down = PanelMatrix<double>(20, 18, WeightType::full);
    KvCache<double>& cache = layer.memory.cache;
    detail::AttentionMemory<double> memory(layer.config, layer.options);
    detail::Attention<double> attention(weights.attention, 0, memory);
    CHECK(attention.kind() == detail::BlockKind::attention);
    CHECK(layer.error_after(attention) < 1e-13);

    const auto naive =
        specula_test::naive_columns(layer.weights, {{7, 0, {0}}, {3, 1, {0, 1}}, {9, 1, {0, 2}}});
    for (std::int32_t slot = 0; slot < 3; ++slot)
      for (std::int32_t head = 0; head < 2; ++head)
        for (std::int32_t d = 0; d < 6; ++d) {
          const auto at = static_cast<std::size_t>(head * 6 + d), s = static_cast<std::size_t>(slot);
          const double key = cache.keys(0, head).w[d * detail::kPanel + slot],
                       value = cache.values(0, head, slot).w[d];
          CHECK(key == doctest::Approx(naive.keys[0][s][at]).epsilon(1e-12));
          CHECK(value == doctest::Approx(naive.values[0][s][at]).epsilon(1e-12));
        }
  }
}
