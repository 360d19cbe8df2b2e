// SPDX-License-Identifier: MIT
// The input of a model that is conditioned on nothing: its tokens' embeddings, and no state of a target.
#include <specula/cpu/detail/model_input.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "one_layer.hpp"

using namespace specula::cpu;

TEST_CASE("every token starts from its embedding, followed by zeros, whatever an earlier pass left") {
  specula_test::OneLayer layer;
  auto& hidden = layer.batch.hidden;
  std::fill(hidden.values.begin(), hidden.values.end(), NAN);
  detail::ModelInput<double> input(layer.weights, layer.options);
  CHECK(input.batch_end(layer.target, layer.tokens, 0) == 3);
  CHECK(input.batch_end(layer.target, layer.tokens, 2) == 3);
  input.set_batch(layer.batch);
  layer.on_threads([&](const auto& worker) { input.run(worker, layer.batch); });
  for (std::int32_t i = 0; i < 3; ++i)
    for (std::int32_t k = 0; k < hidden.stride; ++k)
      CHECK(hidden.at(i)[k] == (k < 20 ? layer.weights.embedding.value(layer.batch.token(i).token, k) : 0));
}

TEST_CASE("it takes no state of a target, requires none, and adds no block") {
  specula_test::OneLayer layer;
  detail::ModelInput<double> input(layer.weights, layer.options);
  CHECK_THROWS_WITH_AS(input.set_target_state(layer.target, KeyValuesView<double>()),
                       "Decoder::set_target_state: this model does not look at keys and values",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(input.set_target_state(layer.target, specula::FeaturesView<double>()),
                       "Decoder::set_target_state: this model does not look at features",
                       std::invalid_argument);
  CHECK_NOTHROW(input.require_view(layer.target));
  CHECK_FALSE(input.keeps_speculation());
  CHECK(input.make_block(0) == nullptr);
}

TEST_CASE("a draft over its target's embedding starts from its projection, whatever an earlier pass left") {
  const auto target = std::make_shared<const DecoderWeights<double>>(
      random_decoder_weights<double>(specula_test::OneLayer::small(), 3, WeightType::full));
  auto config = specula_test::OneLayer::small();
  config.hidden_size = 18, config.target_hidden_size = 20, config.tied_head = false;
  DecoderWeights<double> weights = random_decoder_weights<double>(config, 4, WeightType::full, target);
  specula_test::OneLayer layer;  // its tokens and threads
  detail::Batch<double> batch(config, layer.options, 24);
  batch.tokens = layer.tokens;
  detail::ModelInput<double> input(weights, layer.options);
  for (int pass = 0; pass < 2; ++pass) {
    std::fill(batch.hidden.values.begin(), batch.hidden.values.end(), NAN);
    auto body = [&](std::int32_t thread) {
      const auto [first, last] = batch.product.share(thread, batch.count());
      input.run({thread, first, last}, batch);
    };
    batch.product.team()->run(body);
    for (std::int32_t i = 0; i < 3; ++i)
      for (std::int32_t k = 0; k < 32; ++k) {
        double want = 0;
        for (std::int32_t c = 0; c < 20 && k < 18; ++c)
          want += weights.embed_projection.value(k, c) * target->embedding.value(batch.token(i).token, c);
        CHECK(batch.hidden.at(i)[k] == doctest::Approx(want).epsilon(1e-12));
      }
  }
}
