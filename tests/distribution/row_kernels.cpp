// SPDX-License-Identifier: MIT
// labels: vectorised
// Reference kernels of rows: their numeric contract.
#include <specula/distribution/row_kernels.hpp>

#include <doctest/doctest.h>

#include "kernel_contract.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

TEST_CASE("the reference kernels meet the contract in doubles") {
  constexpr RowKernels k = ReferenceKernels::table();
  check_contract(k);
  Random random(1);
  for (const double inv_t : {0.7, 1.0, 1e4}) {
    const Tile tile = random_tile(random, 100, 20 / inv_t, 0.1);
    const double log_z = log_sum(tile, inv_t);
    Tile w;
    CHECK(k.fill(tile.data(), Exponent(distribution_over(tile, inv_t, log_z)), w.data()) ==
          doctest::Approx(1.0).epsilon(1e-10));
    const TileStats stats = stats_of(k, tile.data(), inv_t);
    CHECK(std::log2(stats.sum) * std::log(2.0) == doctest::Approx(log_z).epsilon(1e-14));
  }
}

TEST_CASE("the float scalars of an exponent agree with its doubles") {
  Random random(2);
  for (int i = 0; i < 1000; ++i) {
    const double inv_t = std::exp(random.between(-2, 9)), l = random.between(-1e4, 1e4);
    Tile tile{};  // its largest logit is 0
    const Exponent e(distribution_over(tile, inv_t, inv_t * l, 3.5f));
    CHECK(e.min_logit == 3.5f);
    CHECK(static_cast<double>(e.shift) == doctest::Approx(l).epsilon(1e-7));
    // (l - shift) * scale - offset = 0, up to the rounding of scale and offset themselves.
    const double y =
        (l - static_cast<double>(e.shift)) * static_cast<double>(e.scale) - static_cast<double>(e.offset);
    CHECK(std::abs(y) <= 3e-7 * (1 + std::abs(static_cast<double>(e.offset))));
  }
}
