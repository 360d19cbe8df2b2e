// SPDX-License-Identifier: MIT
// labels: optimised
// However little a compiler optimises, no kernel of rows leaves the upper halves of wide registers in use.
#include "wide_registers.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "skip.hpp"

#include <specula/distribution/noise_kernels.hpp>
#include <specula/distribution/row_math.hpp>

using specula::Isa;
using specula_test::skip;
using specula_test::tells_wide_registers;
using specula_test::wide_registers_in_use;

TEST_CASE("kernels of rows") {
  if (!tells_wide_registers()) return skip("this processor does not tell which registers are in use");
  const std::vector<float> row(specula::detail::kTile, 1.0f), other(specula::detail::kTile, 0.5f);
  std::vector<float> weights(row), out(row);
  std::vector<std::int32_t> places(specula::detail::kTile);
  std::vector<std::uint32_t> words(specula::detail::kTile);
  specula::detail::TileStats stats{};
  const specula::detail::Exponent exponent{specula::Distribution{}};
  const Isa before = specula::detail::isa();
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (!specula::supported(isa)) continue;
    CAPTURE(static_cast<int>(isa));
    specula::detail::use_isa(isa);
    const specula::detail::RowKernels& kernels = specula::detail::kernels();
    kernels.maximum(row.data());
    CHECK_FALSE(wide_registers_in_use());
    kernels.stats(row.data(), 1, 1.0, &stats);
    CHECK_FALSE(wide_registers_in_use());
    kernels.fill(row.data(), exponent, weights.data());
    CHECK_FALSE(wide_registers_in_use());
    kernels.subtract(weights.data(), other.data(), 1, 0.5f);
    CHECK_FALSE(wide_registers_in_use());
    kernels.difference(row.data(), exponent, other.data(), exponent, 1, 0.5f);
    CHECK_FALSE(wide_registers_in_use());
    kernels.cross(row.data(), exponent, other.data(), exponent, 1, 0.5f, out.data());
    CHECK_FALSE(wide_registers_in_use());
    kernels.above(row.data(), 0.5f, places.data());
    CHECK_FALSE(wide_registers_in_use());
    specula::detail::noise_block({}, weights.data(), 1, words.data());
    CHECK_FALSE(wide_registers_in_use());
  }
  specula::detail::use_isa(before);
}
