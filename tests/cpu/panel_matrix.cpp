// SPDX-License-Identifier: MIT
// labels: vectorised
// PanelMatrix: rows are stored and read back, with both weight types.
#include <specula/cpu/panel_matrix.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

using namespace specula::cpu;

TEST_CASE("rows read back equal those stored, rounded for bfloat16; padding rows are zero") {
  for (const WeightType type : {WeightType::bf16, WeightType::full}) {
    PanelMatrix<float> matrix(21, 5, type);
    CHECK(matrix.panels() == 2);
    CHECK(matrix.padded_rows() == 32);
    for (std::int32_t r = 0; r < 21; ++r) {
      std::vector<float> row(5);
      for (std::int32_t k = 0; k < 5; ++k)
        row[static_cast<std::size_t>(k)] = static_cast<float>(r) - 0.5f * static_cast<float>(k);
      matrix.set_row(r, row);
    }
    std::vector<float> out(5);
    for (std::int32_t r = 0; r < 21; ++r) {
      matrix.get_row(r, out.data());
      for (std::int32_t k = 0; k < 5; ++k)
        CHECK(out[static_cast<std::size_t>(k)] == static_cast<float>(r) - 0.5f * static_cast<float>(k));
    }
    CHECK(matrix.value(31, 4) == 0.0f);
  }
}

TEST_CASE("bfloat16 is the nearest, ties to even") {
  PanelMatrix<float> coarse(1, 8, WeightType::bf16);
  const float infinity = std::numeric_limits<float>::infinity();
  coarse.set_row(0, std::vector<float>{1.001f, 1.005f, 1 + 0x1p-8f, 1 + 0x3p-8f, -1.005f, infinity,
                                       std::bit_cast<float>(0x7fffffffu), std::numeric_limits<float>::max()});
  CHECK(coarse.value(0, 0) == 1.0f);
  CHECK(coarse.value(0, 1) == 1 + 0x1p-7f);
  CHECK(coarse.value(0, 2) == 1.0f);
  CHECK(coarse.value(0, 3) == 1 + 0x1p-6f);
  CHECK(coarse.value(0, 4) == -1 - 0x1p-7f);
  CHECK(coarse.value(0, 5) == infinity);
  CHECK(std::isnan(coarse.value(0, 6)));
  CHECK(coarse.value(0, 7) == infinity);
}

TEST_CASE("selected rows keep their bits and type; padding rows are zero") {
  for (const WeightType type : {WeightType::bf16, WeightType::full}) {
    PanelMatrix<double> matrix(40, 5, type);
    for (std::int32_t r = 0; r < 40; ++r)
      matrix.set_row(r, std::vector<float>{static_cast<float>(r), 1, -2, 3, 0.5f * static_cast<float>(r)});
    const std::vector<std::int32_t> rows{39, 0, 16, 17, 0};
    const PanelMatrix<double> some = matrix.select(rows);
    CHECK(some.rows() == 5);
    CHECK(some.cols() == 5);
    CHECK(some.type() == type);
    for (std::int32_t r = 0; r < 5; ++r)
      for (std::int32_t k = 0; k < 5; ++k)
        CHECK(some.value(r, k) == matrix.value(rows[static_cast<std::size_t>(r)], k));
    CHECK(some.value(15, 4) == 0);
    CHECK(matrix.select({}).rows() == 0);
  }
}

TEST_CASE("matrices of an arena are contiguous, and outlive it") {
  PanelMatrix<float> first, second;
  {
    specula::cpu::detail::Arena arena;
    first = {17, 3, WeightType::bf16, arena};
    second = {5, 7, WeightType::full, arena};
  }
  CHECK(static_cast<const void*>(first.bf16_panels(2).w) == second.real_panels(0).w);
  first.set_row(16, std::vector<float>{1, 2, 3});
  CHECK(first.value(16, 2) == 3.0f);
  CHECK(second.value(4, 6) == 0.0f);
  const PanelMatrix<float> larger_than_a_chunk(1 << 11, 1 << 11, WeightType::full);
  CHECK(larger_than_a_chunk.value((1 << 11) - 1, (1 << 11) - 1) == 0.0f);
}

TEST_CASE("the distance between inputs is not a multiple of 4096 bytes") {
  using specula::cpu::detail::column_stride;
  CHECK(column_stride<float>(383) == 384);
  CHECK(column_stride<float>(1024) == 1040);
  CHECK(column_stride<double>(500) == 528);
}
