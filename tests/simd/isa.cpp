#include <specula/simd/isa.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("what every processor has, and the best of what this one has") {
  CHECK(supported(Isa::reference));
  CHECK(supported(Isa::portable));
  CHECK(supported(best_isa()));
  CHECK(best_isa() != Isa::reference);
  if (supported(Isa::avx512)) CHECK(best_isa() == Isa::avx512);
}
