// SPDX-License-Identifier: MIT
// labels: vectorised
// SIMD kernels of rows: their numeric contract on each instruction set.
#include <specula/distribution/row_kernels_simd.hpp>

#include <doctest/doctest.h>

#include "kernel_contract.hpp"
#include "skip.hpp"

using namespace specula;
using namespace specula::detail;
using namespace specula_test;

TEST_CASE("the portable kernels meet the contract") {
  constexpr RowKernels kernels = row_kernels<Isa::portable>();
  check_contract(kernels);
  check_order(kernels);
}

#if SPECULA_X86
TEST_CASE("the AVX2 kernels meet the contract") {
  if (!supported(Isa::avx2)) return skip("this processor lacks avx2");
  constexpr RowKernels kernels = row_kernels<Isa::avx2>();
  check_contract(kernels);
  check_order(kernels);
}

TEST_CASE("the AVX-512 kernels meet the contract") {
  if (!supported(Isa::avx512)) return skip("this processor lacks avx512f");
  constexpr RowKernels kernels = row_kernels<Isa::avx512>();
  check_contract(kernels);
  check_order(kernels);
}

TEST_CASE("AVX2 and AVX-512 give the same bits") {
  if (!supported(Isa::avx512)) return skip("this processor lacks avx512f");
  check_same_bits(row_kernels<Isa::avx2>(), row_kernels<Isa::avx512>());
}
#endif
