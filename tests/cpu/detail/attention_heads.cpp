// SPDX-License-Identifier: MIT
// The heads of attention: rotary position embedding, and which keys and values a query reads.
#include <specula/cpu/detail/attention_heads.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "one_layer.hpp"

using namespace specula::cpu;
using specula_test::OneLayer;

TEST_CASE("a head is turned by the angles of its position, pair by pair, and scaled") {
  OneLayer layer;
  const detail::AttentionHeads<double> heads(layer.config, 48, layer.options, 16);
  std::vector<double> x{1, -2, 3, 0.5, 4, -1}, out(22);
  x.resize(22);
  heads.transform(layer.batch, x.data(), 5, 2.0, out.data());
  for (std::size_t pair = 0; pair < 3; ++pair) {
    const double angle = 5 * std::pow(10000, -2.0 * static_cast<double>(pair) / 6), a = x[pair],
                 b = x[pair + 3];
    CHECK(out[pair] == doctest::Approx(2 * (a * std::cos(angle) - b * std::sin(angle))).epsilon(1e-14));
    CHECK(out[pair + 3] == doctest::Approx(2 * (b * std::cos(angle) + a * std::sin(angle))).epsilon(1e-14));
  }
}

TEST_CASE(
    "where all keys are alike, queries get the mean of what their token sees, of their group's KV head") {
  OneLayer layer;
  detail::AttentionHeads<double> heads(layer.config, 48, layer.options, 16);
  KvCache<double> cache(1, 2, 6, 8);
  const std::vector<double> key(6);
  for (std::int32_t head = 0; head < 2; ++head)
    for (std::int32_t slot = 0; slot < 3; ++slot) {
      std::vector<double> value(6);
      for (std::int32_t d = 0; d < 6; ++d) value[static_cast<std::size_t>(d)] = 100 * head + 10 * slot + d;
      cache.store(0, head, slot, key.data(), value.data());
    }
  std::fill(heads.projected.values.begin(), heads.projected.values.end(), 1.0);
  const double slots_seen[]{0, 0.5, 1};  // the mean of each token's
  for (std::int32_t head = 0; head < 2; ++head) {
    heads.attend({0, 0, 3}, layer.batch, layer.segment, cache, 0, head, layer.tokens, 0, 3);
    CHECK(heads.outputs(head, 1) == heads.mixed.at(1) + head * 12);
    for (std::int32_t i = 0; i < 3; ++i)
      for (std::int32_t g = 0; g < 2; ++g)
        for (std::int32_t d = 0; d < 6; ++d)
          CHECK(heads.mixed.at(i)[(head * 2 + g) * 6 + d] ==
                doctest::Approx(100 * head + 10 * slots_seen[i] + d).epsilon(1e-14));
  }
}
