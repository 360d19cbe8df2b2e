// labels: vectorised
#include <specula/distribution/row_kernels_avx2.hpp>

#include <doctest/doctest.h>
#include <specula/distribution/row_math.hpp>

#include "kernel_contract.hpp"
#include "skip.hpp"

using namespace specula::detail;

#ifdef SPECULA_HAS_AVX_KERNELS
TEST_CASE("the Avx2 kernels keep the contract") {
  if (!supported(Isa::avx2)) return specula_test::skip("this processor lacks avx2");
  constexpr RowKernels kernels = Avx2Kernels::table();
  specula_test::check_contract(kernels);
  specula_test::check_order(kernels);
}

TEST_CASE("AVX2 and AVX-512 give the same bits") {
  if (!supported(Isa::avx512)) return specula_test::skip("this processor lacks avx512");
  specula_test::check_same_bits(Avx2Kernels::table(), Avx512Kernels::table());
}
#else
TEST_CASE("AVX2 kernels") { specula_test::skip("compiled for another kind of processor"); }
#endif
