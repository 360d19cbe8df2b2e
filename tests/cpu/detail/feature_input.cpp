// SPDX-License-Identifier: MIT
// Input of a feature head: embedding and feature of the token before, level by level, against plain loops.
#include <specula/cpu/detail/feature_input.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "one_layer.hpp"
#include "worst.hpp"

using namespace specula::cpu;
using specula_test::OneLayer;

namespace {

struct Head : OneLayer {
  static DecoderConfig head() {
    DecoderConfig config = small();
    config.conditioned_on = specula::Conditioning::features;
    return config;
  }
  Head()
      : OneLayer(head(),
                 std::make_shared<const DecoderWeights<double>>(random_decoder_weights<double>(small(), 6))) {
    for (std::size_t k = 0; k < 20; ++k) {
      given.push_back(0.5 - 0.1 * static_cast<double>(k));
      memory.features.at(0)[k] = 0.3 * static_cast<double>(k) - 1;
    }
    for (std::size_t k = 0; k < 20; ++k) weights.feature_input->bias[k] = 0.01 * static_cast<double>(k);
  }
  /// A view of the target's first `size` features, of which there is one.
  specula::FeaturesView<double> view(std::int32_t size, std::int32_t width = 20) {
    return {given.data(), size, width, 20, specula::detail::ViewGuard(changes)};
  }
  /// The largest difference of token i's input from that of plain loops with this feature.
  double error(std::int32_t i, const double* feature) {
    double worst = 0;
    for (std::int32_t r = 0; r < 20; ++r) {
      double want = weights.feature_input->bias[static_cast<std::size_t>(r)];
      for (std::int32_t k = 0; k < 20; ++k) {
        want += weights.feature_input->fusion.value(r, k) * weights.tokens().value(batch.token(i).token, k);
        if (feature) want += weights.feature_input->fusion.value(r, 20 + k) * feature[k];
      }
      worst = specula_test::worse(worst, std::abs(batch.hidden.at(i)[r] - want));
    }
    return worst;
  }

  std::vector<double> given;
  specula::detail::ChangeCount changes;
};

}  // namespace

TEST_CASE("the target's feature where it has one, zeros for the first token; all in one batch") {
  Head head;
  detail::FeatureInput<double> input(head.weights, head.options);
  CHECK_THROWS_AS(input.require_view(head.target), std::logic_error);
  input.set_target_state(head.target, head.view(1));
  CHECK(input.batch_end(head.target, head.tokens, 0) == 3);
  head.on_threads([&](const auto& worker) { input.run(worker, head.batch); });
  CHECK(head.error(0, nullptr) < 1e-13);
  CHECK(head.error(1, head.given.data()) < 1e-13);
  CHECK(head.error(2, head.given.data()) < 1e-13);
}

TEST_CASE(
    "beyond the target's features the head's own, from the pass of the token before: a level at a time") {
  Head head;
  detail::FeatureInput<double> input(head.weights, head.options);
  input.set_target_state(head.target, head.view(0));
  CHECK(input.batch_end(head.target, head.tokens, 0) == 1);
  CHECK(input.batch_end(head.target, head.tokens, 1) == 3);  // siblings
  head.batch.tokens = std::span(head.tokens).subspan(1);
  head.segment.last = 2;
  head.on_threads([&](const auto& worker) { input.run(worker, head.batch); });
  CHECK(head.error(0, head.memory.features.at(0)) < 1e-13);
  CHECK(head.error(1, head.memory.features.at(0)) < 1e-13);
}

TEST_CASE("features of another width are refused") {
  Head head;
  detail::FeatureInput<double> input(head.weights, head.options);
  CHECK_THROWS_WITH_AS(input.set_target_state(head.target, head.view(1, 19)),
                       "Decoder::set_target_state: features of width 19, the model's hidden size is 20",
                       std::invalid_argument);
}
