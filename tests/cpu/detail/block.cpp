// SPDX-License-Identifier: MIT
// What all blocks use: norm, biases and the residual stream of a batch; and which blocks a pass skips.
#include <specula/cpu/detail/block.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include "one_layer.hpp"

using namespace specula::cpu;
using detail::BlockKind;
using specula_test::OneLayer;

TEST_CASE("the norm of each token: x / sqrt(mean(x^2) + eps) * weight; a copy where there is no weight") {
  OneLayer layer;
  auto& batch = layer.batch;
  detail::AlignedVector<double> weight(32);
  for (std::size_t k = 0; k < 20; ++k) weight[k] = 1 + 0.1 * static_cast<double>(k);
  layer.on_threads([&](const auto& worker) { batch.norm(worker, weight); });
  for (std::int32_t i = 0; i < 3; ++i) {
    double square = 0;
    for (std::int32_t k = 0; k < 20; ++k) square += batch.hidden.at(i)[k] * batch.hidden.at(i)[k] / 20;
    for (std::int32_t k = 0; k < 20; ++k)
      CHECK(batch.normed.at(i)[k] ==
            doctest::Approx(batch.hidden.at(i)[k] / std::sqrt(square + 1e-6) * (1 + 0.1 * k)).epsilon(1e-13));
  }
  layer.on_threads([&](const auto& worker) { batch.norm(worker, {}); });
  for (std::int32_t i = 0; i < 3; ++i)
    for (std::int32_t k = 0; k < 20; ++k) CHECK(batch.normed.at(i)[k] == batch.hidden.at(i)[k]);
}

TEST_CASE("a bias is added to what a product wrote, and what follows is cleared, whatever was there") {
  OneLayer layer;
  detail::AlignedVector<double> bias(32, 0.5);
  detail::Activations<double> to(3, 20);
  std::fill(to.values.begin(), to.values.end(), NAN);
  for (std::int32_t i = 0; i < 3; ++i)
    for (std::int32_t k = 0; k < 20; ++k) to.at(i)[k] = 100 * i + k;
  layer.on_threads([&](const auto& worker) { layer.batch.add_bias(worker, bias, 20, to); });
  for (std::int32_t i = 0; i < 3; ++i)
    for (std::int32_t k = 0; k < to.stride; ++k) CHECK(to.at(i)[k] == (k < 20 ? 100 * i + k + 0.5 : 0));
}

TEST_CASE("what a block adds comes to the residual stream, token by token") {
  OneLayer layer;
  auto& batch = layer.batch;
  const double before = batch.hidden.at(2)[19];
  for (std::int32_t i = 0; i < 3; ++i) batch.added.at(i)[19] = 10 * i + 1;
  layer.on_threads([&](const auto& worker) { batch.add(worker); });
  CHECK(batch.hidden.at(2)[19] == before + 21);
}

TEST_CASE("a pass skips the attention and the MLP of those layers that it was told, and no other block") {
  specula::SkippedBlocks skipped(2);
  skipped.attention[0] = skipped.mlp[1] = 1;
  detail::PassPart part;
  CHECK_FALSE(part.skips(BlockKind::attention, 0));
  part.skipped = &skipped;
  CHECK(part.skips(BlockKind::attention, 0));
  CHECK_FALSE(part.skips(BlockKind::attention, 1));
  CHECK_FALSE(part.skips(BlockKind::mlp, 0));
  CHECK(part.skips(BlockKind::mlp, 1));
  CHECK_FALSE(part.skips(BlockKind::other, 0));
  CHECK_FALSE(part.skips(BlockKind::other, 1));
}
