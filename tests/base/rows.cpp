// SPDX-License-Identifier: MIT
// LogitsView, Distribution and PointMasses.
#include <specula/base/rows.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace specula;

TEST_CASE("rows with a stride of 64 bits") {
  const std::vector<float> data = {1, 2, 3, -1, 4, 5, 6, -1};
  const LogitsView rows{data.data(), 2, 3, 4};
  CHECK(rows.row(1).size() == 3);
  CHECK(rows.row(1)[0] == 4);
  CHECK(rows.row(1)[2] == 6);
  const LogitsView wide{data.data(), 20000, 200000, 200000};
  static_assert(sizeof(wide.stride) == 8);
  // Only the address is checked: 19,999 rows of 200,000 floats are beyond 32 bits.
  const auto address = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p); };
  CHECK(address(wide.row(19999).data()) - address(data.data()) == 19999ull * 200000ull * 4ull);
}

TEST_CASE("a distribution from logits") {
  const std::vector<float> logits = {1.0f, 2.0f, 0.5f};
  Distribution distribution;
  distribution.logits = logits.data();
  distribution.inv_t = 2;
  distribution.log_z = 5;
  distribution.min_logit = 1.0f;
  CHECK(distribution(0) == doctest::Approx(std::exp(2.0 - 5.0)).epsilon(1e-15));  // at the threshold: kept
  CHECK(distribution(1) == doctest::Approx(std::exp(4.0 - 5.0)).epsilon(1e-15));
  CHECK(distribution(2) == 0.0);
  CHECK(distribution.log_prob(0.5f) == doctest::Approx(1.0 - 5.0).epsilon(1e-15));  // with any truncation
  CHECK(!distribution.is_point());
  const std::vector<float> large = {1e30f, 1e30f, 0};
  distribution = {.logits = large.data(), .log_z = std::log(2.0), .shift = 1e30f};
  CHECK(distribution(0) == doctest::Approx(0.5).epsilon(1e-15));
  CHECK(distribution(1) == distribution(0));
  CHECK(distribution(2) == 0.0);
}

TEST_CASE("a point mass needs no row") {
  const Distribution distribution = Distribution::at(3);
  CHECK(distribution.is_point());
  CHECK(distribution(3) == 1.0);
  CHECK(distribution(0) == 0.0);
}

TEST_CASE("point masses: confidence 1, unless given") {
  const std::vector<Token> tokens = {4, kNoToken};
  const std::vector<float> confidences = {0.25f, 0.0f};
  CHECK(PointMasses{tokens}.confidence(0) == 1);
  CHECK(PointMasses{tokens}.confidence(1) == 1);
  CHECK(PointMasses{tokens, confidences}.confidence(0) == 0.25f);
  CHECK(PointMasses{tokens, confidences}.confidence(1) == 0);
}
