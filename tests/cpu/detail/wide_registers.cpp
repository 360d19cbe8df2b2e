// SPDX-License-Identifier: MIT
// labels: optimised
// However little a compiler optimises, no product of the CPU model leaves the upper halves of wide registers
// in use.
#include "wide_registers.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "skip.hpp"

#include <specula/cpu/detail/bf16_product.hpp>
#include <specula/cpu/detail/panel_product.hpp>
#include <specula/cpu/detail/round_to_half.hpp>
#include <specula/cpu/panel_matrix.hpp>

using namespace specula::cpu;
using specula::Isa;
using specula_test::skip;
using specula_test::tells_wide_registers;
using specula_test::wide_registers_in_use;

TEST_CASE("products of panels, of one input and of several") {
  if (!tells_wide_registers()) return skip("this processor does not tell which registers are in use");
  constexpr std::int32_t kRows = 64, kCols = 48;
  for (const WeightType type : {WeightType::bf16, WeightType::full}) {
    PanelMatrix<float> matrix(kRows, kCols, type);
    for (std::int32_t r = 0; r < kRows; ++r) matrix.set_row(r, std::vector<float>(kCols, 1.0f));
    for (const std::int32_t inputs : {1, 2, 3, 4, 7}) {
      const std::vector<float> x(static_cast<std::size_t>(inputs) * kCols, 0.5f);
      std::vector<float> y(static_cast<std::size_t>(inputs) * kRows);
      const detail::Columns<float> io{x.data(), kCols, y.data(), kRows};
      CAPTURE(inputs);
      for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
        if (!specula::supported(isa)) continue;
        CAPTURE(static_cast<int>(isa));
        if (type == WeightType::bf16)
          detail::panel_product(isa, matrix.bf16_panels(0), matrix.panels(), kCols, io, inputs);
        else
          detail::panel_product(isa, matrix.real_panels(0), matrix.panels(), kCols, io, inputs);
        CHECK_FALSE(wide_registers_in_use());
        CHECK(y[0] == kCols / 2);
      }
      if (type == WeightType::bf16 && has_bf16_products()) {
        detail::Bf16Product(inputs, kCols).run(matrix.bf16_panels(0), matrix.panels(), kCols, io, inputs);
        CHECK_FALSE(wide_registers_in_use());
      }
    }
  }
}

TEST_CASE("rounding to half floats, and products with them") {
  if (!tells_wide_registers()) return skip("this processor does not tell which registers are in use");
  constexpr std::int32_t kPanels = 4, kDepth = 48;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (!specula::supported(isa)) continue;
    CAPTURE(static_cast<int>(isa));
    const std::vector<float> ones(kPanels * kDepth * detail::kPanel, 1.0f);
    std::vector<std::uint16_t> w(ones.size());
    detail::round_to_half(isa, ones.data(), kPanels * kDepth * detail::kPanel, w.data());
    CHECK_FALSE(wide_registers_in_use());
    for (const std::int32_t inputs : {1, 2, 3, 4, 7}) {
      const std::vector<float> x(static_cast<std::size_t>(inputs) * kDepth, 0.5f);
      std::vector<float> y(static_cast<std::size_t>(inputs) * kPanels * detail::kPanel);
      detail::panel_product(isa, detail::HalfPanels{w.data(), kDepth * detail::kPanel}, kPanels, kDepth,
                            detail::Columns<float>{x.data(), kDepth, y.data(), kPanels * detail::kPanel},
                            inputs);
      CHECK_FALSE(wide_registers_in_use());
      CHECK(y[0] == kDepth / 2);
    }
  }
}
