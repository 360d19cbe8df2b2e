// labels: vectorised
#include <specula/distribution/row_kernels_portable.hpp>

#include <doctest/doctest.h>

#include "kernel_contract.hpp"

TEST_CASE("the portable kernels keep the contract") {
  constexpr auto kernels = specula::detail::PortableKernels::table();
  specula_test::check_contract(kernels);
  specula_test::check_order(kernels);
}
