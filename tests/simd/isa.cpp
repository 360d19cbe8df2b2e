// SPDX-License-Identifier: MIT
// Instruction sets and their detection.
#include <specula/simd/isa.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("the reference and portable sets are always supported, and so is the best one") {
  CHECK(supported(Isa::reference));
  CHECK(supported(Isa::portable));
  CHECK(supported(best_isa()));
  CHECK(best_isa() != Isa::reference);
  if (supported(Isa::avx512)) CHECK(best_isa() == Isa::avx512);
}
