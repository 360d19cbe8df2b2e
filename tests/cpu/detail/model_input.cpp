// The input of a model that is conditioned on nothing: its tokens' embeddings, and no state of a target.
#include <specula/cpu/detail/model_input.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "one_layer.hpp"

using namespace specula::cpu;

TEST_CASE("every token starts from its embedding, followed by zeros, whatever an earlier pass left") {
  specula_test::OneLayer layer;
  auto& hidden = layer.batch.hidden;
  std::fill(hidden.values.begin(), hidden.values.end(), NAN);
  detail::ModelInput<double> input(layer.weights);
  CHECK(input.batch_end(layer.tokens, 0) == 3);
  CHECK(input.batch_end(layer.tokens, 2) == 3);
  input.set_batch(layer.tokens);
  layer.on_threads([&](const auto& worker) { input.run(worker, layer.batch); });
  for (std::int32_t i = 0; i < 3; ++i)
    for (std::int32_t k = 0; k < hidden.stride; ++k)
      CHECK(hidden.at(i)[k] == (k < 20 ? layer.weights.embedding.value(layer.batch.token(i).token, k) : 0));
}

TEST_CASE("it takes no state of a target, requires none, and adds no block") {
  specula_test::OneLayer layer;
  detail::ModelInput<double> input(layer.weights);
  CHECK_THROWS_WITH_AS(input.set_target_state(KeyValuesView<double>()),
                       "Decoder::set_target_state: this model does not look at keys and values",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(input.set_target_state(specula::FeaturesView<double>()),
                       "Decoder::set_target_state: this model does not look at features",
                       std::invalid_argument);
  CHECK_NOTHROW(input.require_view());
  CHECK_FALSE(input.keeps_speculation());
  CHECK(input.make_block(0) == nullptr);
}
