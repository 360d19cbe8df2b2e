// labels: light
// The angles of rotary position embedding.
#include <specula/cpu/detail/rope_table.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

using namespace specula::cpu;

TEST_CASE("llama3 scaling keeps short waves, slows long ones, and is between in between") {
  AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 128, .rope_theta = 500000, .rope_scaling = {}};
  const AttentionShape plain = shape;
  shape.rope_scaling = {
      .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 8192};
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

TEST_CASE("a table has the cosine and sine of every pair's angle at every position") {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 6, .rope_theta = 100, .rope_scaling = {}};
  const detail::RopeTable<double> table(shape, 4);
  for (std::int32_t position = 0; position < 4; ++position)
    for (std::int32_t pair = 0; pair < 3; ++pair) {
      const double angle = position * std::pow(100, -2.0 * pair / 6);
      CHECK(table.cosine(position)[pair] == doctest::Approx(std::cos(angle)).epsilon(1e-14));
      CHECK(table.sine(position)[pair] == doctest::Approx(std::sin(angle)).epsilon(1e-14));
    }
}
