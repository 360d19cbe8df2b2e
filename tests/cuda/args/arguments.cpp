// SPDX-License-Identifier: MIT
// Checks of kernel arguments: null, misaligned and overlapping arrays, launch geometries.
#include <doctest/doctest.h>
#include <specula/cuda/args/arguments.cuh>

#include <cstdint>
#include <vector>

using namespace specula::cuda::detail;

TEST_CASE("null and misaligned arrays") {
  const std::vector<double> x(2);
  const auto* bytes = reinterpret_cast<const unsigned char*>(x.data());
  CHECK(!any_null({x.data(), bytes}));
  CHECK(any_null({x.data(), nullptr}));
  CHECK(!any_misaligned(x.data(), reinterpret_cast<const std::int32_t*>(bytes + 4), bytes + 1));
  CHECK(any_misaligned(x.data(), reinterpret_cast<const std::int32_t*>(bytes + 2)));
  CHECK(any_misaligned(reinterpret_cast<const double*>(bytes + 4), x.data()));
  CHECK(!any_misaligned(static_cast<const double*>(nullptr)));
}

TEST_CASE("rows that overlap") {
  CHECK(are_apart(3, 8, 8));
  CHECK(are_apart(3, -8, 8));
  CHECK(!are_apart(3, 7, 8));
  CHECK(!are_apart(3, -7, 8));
  CHECK(!are_apart(2, 0, 8));
  CHECK(are_apart(1, 0, 8));
  CHECK(are_apart(2, std::int64_t{1} << 40, (std::int64_t{1} << 40) - 1));
}

TEST_CASE("launch geometries") {
  for (const int cluster : {1, 2, 4, 8, 16}) CHECK(is_geometry(cluster, 256));
  for (const int cluster : {-1, 0, 3, 6, 12, 32}) CHECK(!is_geometry(cluster, 256));
  for (const int threads : {32, 96, 1024}) CHECK(is_geometry(1, threads));
  for (const int threads : {-32, 0, 16, 33, 100, 1056}) CHECK(!is_geometry(1, threads));
}
