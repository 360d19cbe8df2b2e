// SPDX-License-Identifier: MIT
// What is kept of tokens, by slot: where a token's data comes to lie, that a move takes all of it, and that
// nothing is kept that was not asked for.
#include <specula/cpu/detail/slot_memory.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "one_layer.hpp"

using namespace specula::cpu;
using detail::BlockKind;
using specula_test::OneLayer;

namespace {

/// Adds to the residual stream what the test wrote there.
struct Added final : detail::Block<double> {
  explicit Added(BlockKind kind) : Block<double>(kind, 1) {}
  void run(const detail::Worker&, detail::Batch<double>&) override {}
};

/// A layer whose model has two exits and keeps all there is.
struct Kept : OneLayer {
  Kept() {
    config.layers = 2;
    config.exits = {1, 2};
    options.feature_layers = {1, 2};
    options.measure_similarity = true;
  }
};

}  // namespace

TEST_CASE("only what options and config ask for is kept") {
  OneLayer layer;
  detail::SlotMemory<double> slots(layer.config, layer.options);
  layer.segment.memory = &slots;
  CHECK(slots.cache.slots() == 16);
  CHECK_FALSE(slots.features.values.empty());
  CHECK(slots.exit_states.values.empty());
  CHECK(slots.hidden_states().layers.empty());
  for (const BlockKind kind : {BlockKind::attention, BlockKind::mlp, BlockKind::other})
    CHECK(slots.cosines(kind).values.empty());
  Added attention(BlockKind::attention);
  slots.store_cosines({0, 0, 3}, layer.batch, attention);
  slots.store_hidden_states({0, 0, 3}, layer.batch, 1);
  slots.move(2, 1);
}

TEST_CASE("a token's activations lie in its slot, and a move takes all that is kept of it") {
  Kept layer;
  layer.tokens[1].slot = 5;
  auto& batch = layer.batch;
  detail::SlotMemory<double> slots(layer.config, layer.options);
  layer.segment.memory = &slots;
  Added attention(BlockKind::attention), mlp(BlockKind::mlp);
  for (std::int32_t i = 0; i < 3; ++i)
    for (std::int32_t k = 0; k < 20; ++k) batch.normed.at(i)[k] = 100 * i + k, batch.added.at(i)[k] = k % 2;
  layer.on_threads([&](const auto& worker) {
    slots.store(worker, batch, batch.normed, &detail::SlotMemory<double>::features);
    slots.store(worker, batch, batch.hidden, &detail::SlotMemory<double>::exit_states);
    slots.store_hidden_states(worker, batch, 2);
    slots.store_hidden_states(worker, batch, 3);  // no such layer is kept
    slots.store_cosines(worker, batch, attention);
    slots.store_cosines(worker, batch, mlp);  // not measured
  });
  std::vector<double> key(6, 2.0), value(6, 3.0);
  slots.cache.store(1, 1, 5, key.data(), value.data());
  double xx = 0, xy = 0, yy = 0;
  for (std::int32_t k = 0; k < 20; ++k) {
    const double x = batch.hidden.at(1)[k], y = x + k % 2;
    xx += x * x, xy += x * y, yy += y * y;
  }

  const auto holds_token = [&](std::int32_t slot) {
    const auto states = slots.hidden_states();
    REQUIRE(states.layers.size() == 2);
    for (std::int32_t k = 0; k < 20; ++k) {
      CHECK(slots.features.at(slot)[k] == 100 + k);
      CHECK(slots.exit_states.at(slot)[k] == batch.hidden.at(1)[k]);
      CHECK(states.data[slot * states.stride + k] == 0);  // after the first layer
      CHECK(states.data[slot * states.stride + 20 + k] == batch.hidden.at(1)[k]);
    }
    CHECK(slots.cosines(BlockKind::attention).at(1)[slot] == doctest::Approx(xy / std::sqrt(xx * yy)));
    CHECK(slots.cosines(BlockKind::attention).at(0)[slot] == 0);
    CHECK(slots.cache.values(1, 1, slot).w[0] == 3);
  };
  holds_token(5);
  slots.move(5, 1);
  holds_token(1);
  slots.move(1, 1);
  holds_token(1);
  CHECK(slots.features.at(2)[3] == 203);  // no other slot's
  CHECK(slots.cosines(BlockKind::mlp).values.empty());
}

TEST_CASE("a later pass goes on from the exit's states, of whatever slots its tokens have") {
  Kept layer;
  detail::SlotMemory<double> slots(layer.config, layer.options);
  layer.segment.memory = &slots;
  for (std::int32_t slot = 0; slot < 8; ++slot) slots.exit_states.at(slot)[19] = slot;
  layer.tokens[0].slot = 6;
  layer.on_threads([&](const auto& worker) { slots.load_exit_states(worker, layer.batch); });
  CHECK(layer.batch.hidden.at(0)[19] == 6);
  CHECK(layer.batch.hidden.at(1)[19] == 1);
  CHECK(layer.batch.hidden.at(2)[19] == 2);
}
