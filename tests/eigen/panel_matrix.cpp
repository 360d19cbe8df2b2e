// labels: vectorised
// Rows go in and come out again, in both ways of storing them.
#include <specula/eigen/panel_matrix.hpp>

#include "specula/eigen/panel_matrix.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace specula::eigen;

TEST_CASE("rows are found again; bfloat16 keeps what fits it, and rows beyond the last are zero") {
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
  PanelMatrix<float> coarse(1, 1, WeightType::bf16);
  coarse.set_row(0, std::vector<float>{1.001f});
  CHECK(coarse.value(0, 0) == 1.0f);  // the upper half
}
