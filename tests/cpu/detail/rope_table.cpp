// SPDX-License-Identifier: MIT
// The angles of rotary position embedding.
#include <specula/cpu/detail/rope_table.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

using namespace specula::cpu;

TEST_CASE("llama3 scaling keeps short waves, slows long ones, and is between in between") {
  AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 128, .rope_theta = 500000, .rope_scaling = {}};
  const AttentionShape plain = shape;
  shape.rope_scaling = {
      .type = RopeType::llama3, .factor = 8, .original_max_position = 8192, .low_turns = 1, .high_turns = 4};
  const auto ratio = [&](std::int32_t pair) {
    return detail::rope_frequency(shape, pair) / detail::rope_frequency(plain, pair);
  };
  CHECK(ratio(0) == 1);
  CHECK(ratio(63) == doctest::Approx(0.125));
  int between = 0;
  for (std::int32_t pair = 1; pair < 64; ++pair) {
    CHECK(ratio(pair) <= ratio(pair - 1) + 1e-12);
    between += ratio(pair) < 1 && ratio(pair) > 0.1251;
  }
  CHECK(between > 0);
  // pair 30: wave 2 pi 500000^(60/128) = 2948.3, smooth = (8192 / 2948.3 - 1) / 3 = 0.59283
  CHECK(ratio(30) == doctest::Approx((1 - 0.59283) / 8 + 0.59283).epsilon(1e-4));
}

TEST_CASE("linear scaling slows all pairs") {
  AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 4, .rope_theta = 100, .rope_scaling = {}};
  shape.rope_scaling = {.type = RopeType::linear, .factor = 2.5};
  CHECK(detail::rope_frequency(shape, 0) == doctest::Approx(1 / 2.5));
  CHECK(detail::rope_frequency(shape, 1) == doctest::Approx(0.1 / 2.5));
}

TEST_CASE("yarn keeps fast pairs and slows slow ones, in steps between whole pairs") {
  AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 128, .rope_theta = 10000, .rope_scaling = {}};
  const auto kept = [&](bool truncate) {
    shape.rope_scaling = {.type = RopeType::yarn,
                          .factor = 4,
                          .original_max_position = 4096,
                          .low_turns = 1,
                          .high_turns = 32,
                          .truncate = truncate};
    std::vector<double> out;
    for (std::int32_t pair = 0; pair < 64; ++pair)
      out.push_back(detail::kept_frequency(shape, pair, std::pow(10000, -pair / 64.0)));
    return out;
  };
  // The pair that turns n times within 4096 tokens: 64 ln(4096 / (2 pi n)) / ln 10000; 20.945 for 32 turns,
  // 45.027 for one, rounded outwards.
  const auto whole = kept(true), exact = kept(false);
  CHECK(whole[20] == 1);
  CHECK(whole[21] == doctest::Approx(1 - 1.0 / 26));
  CHECK(whole[45] == doctest::Approx(1.0 / 26));
  CHECK(whole[46] == 0);
  CHECK(exact[20] == 1);
  CHECK(exact[21] == doctest::Approx(1 - (21 - 20.945) / (45.027 - 20.945)).epsilon(1e-4));
  CHECK(exact[46] == 0);
}

TEST_CASE("a table has the cosine and sine of every pair's angle at every position") {
  AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 6, .rope_theta = 100, .rope_scaling = {}};
  shape.rope_scaling.attention_factor = 1.5;
  const detail::RopeTable<double> table(shape, 4);
  for (std::int32_t position = 0; position < 4; ++position)
    for (std::int32_t pair = 0; pair < 3; ++pair) {
      const double angle = position * std::pow(100, -2.0 * pair / 6);
      CHECK(table.cosine(position)[pair] == doctest::Approx(1.5 * std::cos(angle)).epsilon(1e-14));
      CHECK(table.sine(position)[pair] == doctest::Approx(1.5 * std::sin(angle)).epsilon(1e-14));
    }
}
