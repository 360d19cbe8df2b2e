// SPDX-License-Identifier: MIT
// Attention of a draft to its target's keys and values, against plain loops.
#include <specula/cpu/detail/cross_attention.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "one_layer.hpp"

using namespace specula::cpu;
using specula_test::OneLayer;

namespace {

DecoderConfig draft() {
  DecoderConfig config = OneLayer::small();
  config.conditioned_on = specula::Conditioning::key_values;
  static_cast<AttentionShape&>(config.target) = config;
  config.target.layers = 1;
  return config;
}

}  // namespace

TEST_CASE("a token sees the target's keys before its own position, as many as there are") {
  for (const float scores : specula_test::kScores) {
    CAPTURE(scores);
    OneLayer layer(draft(), {}, scores);
    LayerWeights<double>& weights = layer.weights.layers[0];
    weights.attention.output = PanelMatrix<double>(20, 24, WeightType::full);  // they add nothing
    weights.mlp.down = PanelMatrix<double>(20, 18, WeightType::full);
    const auto target = specula_test::naive_columns(
        specula_test::with_scores(random_decoder_weights<double>(OneLayer::small(), 6), scores),
        {{1, 0, {0}}, {2, 1, {0, 1}}, {3, 2, {0, 1, 2}}});
    KvCache<double> cache(1, 2, 6, 8);
    for (std::int32_t slot = 0; slot < 3; ++slot)
      for (std::int32_t head = 0; head < 2; ++head) {
        const auto s = static_cast<std::size_t>(slot), at = static_cast<std::size_t>(6 * head);
        cache.store(0, head, slot, &target.keys[0][s][at], &target.values[0][s][at]);
      }
    specula::detail::ChangeCount changes;
    detail::KeyValuesInput<double> input(layer.weights, layer.options);
    CHECK_THROWS_AS(input.require_view(layer.target), std::logic_error);
    input.set_target_state(layer.target,
                           KeyValuesView<double>(cache, 3, specula::detail::ViewGuard(changes)));
    CHECK_NOTHROW(input.require_view(layer.target));
    CHECK(input.keeps_speculation());
    layer.tokens[0].position = 2, layer.tokens[1].position = 3, layer.tokens[2].position = 4;
    input.set_batch(layer.batch);
    const auto block = input.make_block(0);
    CHECK(block->active());
    CHECK(layer.error_after(*block, specula_test::naive_columns(
                                        layer.weights, {{7, 2, {0}, 2}, {3, 3, {0, 1}, 3}, {9, 4, {0, 2}, 3}},
                                        &target)) < 1e-13);
  }
}

TEST_CASE("nothing is seen before the first token, and a target of other sizes is refused") {
  OneLayer layer(draft());
  KvCache<double> cache(1, 2, 6, 8), other(1, 2, 8, 8);
  specula::detail::ChangeCount changes;
  const specula::detail::ViewGuard guard(changes);
  detail::KeyValuesInput<double> input(layer.weights, layer.options);
  input.set_target_state(layer.target, KeyValuesView<double>(cache, 0, guard));
  input.set_batch(layer.batch);
  CHECK_FALSE(input.make_block(0)->active());
  CHECK_THROWS_WITH_AS(input.set_target_state(layer.target, KeyValuesView<double>(other, 0, guard)),
                       "Decoder::set_target_state: made for a target with head_dim 6, given one with 8",
                       std::invalid_argument);
}
