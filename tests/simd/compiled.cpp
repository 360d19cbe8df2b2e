// SPDX-License-Identifier: MIT
// A body compiled for each instruction set: the one that was asked for, with the body's arguments and result.
#include <specula/simd/compiled.hpp>

#include <doctest/doctest.h>

#include <specula/simd/isa.hpp>

using specula::Isa;
namespace simd = specula::simd;

namespace {

[[gnu::always_inline]] inline int difference(int a, int b) { return a - b; }

template <Isa isa>
constexpr auto kDifference = simd::compiled<isa, &difference>();

}  // namespace

TEST_CASE("each instruction set has its own function, and all are the body") {
  CHECK(kDifference<Isa::portable>(5, 3) == 2);
#if SPECULA_X86
  static_assert(kDifference<Isa::avx2> == &simd::Compiled<&difference>::avx2);
  static_assert(kDifference<Isa::avx512> == &simd::Compiled<&difference>::avx512);
  static_assert(kDifference<Isa::portable> == &simd::Compiled<&difference>::portable);
  if (specula::supported(Isa::avx2)) CHECK(kDifference<Isa::avx2>(5, 3) == 2);
  if (specula::supported(Isa::avx512)) CHECK(kDifference<Isa::avx512>(5, 3) == 2);
#endif
}
