// SPDX-License-Identifier: MIT
// labels: vectorised
// What the header lets pass computes as it promises; what it refuses: compile_fail/{fast_math,cxx17,...}.cpp
#include <specula/base/compiler_options.hpp>

#include <doctest/doctest.h>

#include <limits>

namespace {

// Read once each, so that a compiler which may reorder sums does.
template <class Real>
Real given(Real value) {
  volatile Real from = value;
  return from;
}

}  // namespace

TEST_CASE_TEMPLATE("sums keep their order, and NaN and infinities are seen", Real, float, double) {
  const Real large = given(Real(1) / std::numeric_limits<Real>::epsilon() * 4), one = given(Real(1));
  CHECK((large + one) - large == 0);
  CHECK((one - large) + large == 0);
  const Real nan = given(std::numeric_limits<Real>::quiet_NaN());
  CHECK(nan != nan);
  CHECK_FALSE(nan < one);
  CHECK_FALSE(nan >= one);
  CHECK(given(std::numeric_limits<Real>::infinity()) > std::numeric_limits<Real>::max());
}
