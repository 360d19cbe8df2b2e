// SPDX-License-Identifier: MIT
// labels: vectorised
// Row arithmetic: choice of kernels, tiles of a row, merging of tiles.
#include <specula/distribution/row_math.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "plain_distribution.hpp"
#include "random.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

TEST_CASE("use_isa selects an instruction set that the processor has") {
  CHECK(isa() == best_isa());
  for (const Isa chosen : every_isa()) {
    const Arithmetic arithmetic(chosen);
    CHECK(isa() == chosen);
  }
  CHECK(isa() == best_isa());
  use_isa(Isa::reference);
  CHECK(isa() == Isa::reference);
  use_isa(best_isa());
  for (const Isa missing : {Isa::avx2, Isa::avx512})
    if (!supported(missing))
      CHECK_THROWS_WITH_AS(use_isa(missing), "use_isa: this processor lacks the instruction set asked for",
                           std::invalid_argument);
}

TEST_CASE("each instruction set has its own kernels") {
  std::array<float, kTile> tile{};
  for (const Isa chosen : every_isa()) {
    const Arithmetic arithmetic(chosen);
    const float* in = tile.data();
    tile[7] = 3;
    CHECK(kernels().maximum(in) == 3.0f);
    const RowKernels want = chosen == Isa::reference ? ReferenceKernels::table()
#if SPECULA_X86
                            : chosen == Isa::avx2   ? row_kernels<Isa::avx2>()
                            : chosen == Isa::avx512 ? row_kernels<Isa::avx512>()
#endif
                                                    : row_kernels<Isa::portable>();
    CHECK((kernels().maximum == want.maximum));
    CHECK((kernels().stats == want.stats));
    CHECK((kernels().fill == want.fill));
    CHECK((kernels().subtract == want.subtract));
    CHECK((kernels().cross == want.cross));
    CHECK((kernels().sum == want.sum));
    CHECK((kernels().widen_half == want.widen_half));
    CHECK((kernels().widen_bfloat16 == want.widen_bfloat16));
  }
}

TEST_CASE("a row's tiles: whole ones in place, the last one padded with -infinity") {
  for (const std::int32_t vocab : {1, 511, 512, 513, 1024, 1300}) {
    std::vector<float> row(static_cast<std::size_t>(vocab));
    std::iota(row.begin(), row.end(), 0.0f);
    CHECK(tile_count(vocab) == static_cast<std::int32_t>(std::ceil(vocab / 512.0)));
    std::array<float, kTile> padding;
    for (std::int32_t t = 0; t < tile_count(vocab); ++t) {
      const float* tile = tile_at(row.data(), vocab, t, padding);
      CHECK((tile == row.data() + 512 * t) == (512 * (t + 1) <= vocab));
      for (std::int32_t i = 0; i < kTile; ++i) {
        const std::int32_t x = 512 * t + i;
        REQUIRE(tile[i] == (x < vocab ? static_cast<float>(x) : -std::numeric_limits<float>::infinity()));
      }
    }
  }
}

TEST_CASE("powers of two with whole and other exponents, down to the least normal double") {
  for (int d = 0; d >= -1022; --d) REQUIRE(pow2(d) == std::ldexp(1.0, d));
  for (const double d : {-0.5, -3.25, -1000.125})
    CHECK(pow2(d) == doctest::Approx(std::exp2(d)).epsilon(1e-15));
  CHECK(pow2(-1023) == 0);
  CHECK(pow2(-std::numeric_limits<double>::infinity()) == 0);
}

TEST_CASE("tiles merge in chunks of 8, in order, bit for bit") {
  Random random(1);
  for (const std::size_t n : {1u, 7u, 8u, 9u, 16u, 100u}) {
    std::vector<double> masses(n);
    for (double& m : masses) m = std::exp(random.between(-30, 5));
    double want = 0;
    for (std::size_t chunk = 0; chunk < n; chunk += 8) {
      double sum = 0;
      for (std::size_t t = chunk; t < n && t < chunk + 8; ++t) sum += masses[t];
      want += sum;
    }
    CHECK(merge_tiles(masses) == want);
  }
  CHECK(merge_tiles({}) == 0);
}
