// SPDX-License-Identifier: MIT
// The MLP block of a layer, against plain loops.
#include <specula/cpu/detail/mlp.hpp>

#include <doctest/doctest.h>

#include "one_layer.hpp"

using namespace specula::cpu;

TEST_CASE("a layer whose attention adds nothing is its MLP") {
  specula_test::OneLayer layer;
  LayerWeights<double>& weights = layer.weights.layers[0];
  weights.attention.output = PanelMatrix<double>(20, 24, WeightType::full);
  detail::MlpMemory<double> memory(layer.config, layer.options);
  detail::Mlp<double> mlp(weights.mlp, 0, memory);
  CHECK(mlp.kind() == detail::BlockKind::mlp);
  CHECK(mlp.active());
  CHECK(layer.error_after(mlp) < 1e-13);
}
