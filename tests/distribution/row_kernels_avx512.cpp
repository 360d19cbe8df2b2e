// labels: vectorised
#include <specula/distribution/row_kernels_avx512.hpp>

#include <doctest/doctest.h>
#include <specula/distribution/row_math.hpp>

#include "kernel_contract.hpp"
#include "skip.hpp"

using namespace specula::detail;

#ifdef SPECULA_HAS_AVX_KERNELS
TEST_CASE("the Avx512 kernels keep the contract") {
  if (!supported(Isa::avx512)) return specula_test::skip("this processor lacks avx512");
  constexpr RowKernels kernels = Avx512Kernels::table();
  specula_test::check_contract(kernels);
  specula_test::check_order(kernels);
}
#else
TEST_CASE("AVX-512 kernels") { specula_test::skip("compiled for another kind of processor"); }
#endif
