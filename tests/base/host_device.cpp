// SPDX-License-Identifier: MIT
// The marks of functions that CPU and CUDA share: what they are where no device is compiled for.
#include <specula/base/host_device.hpp>

#include <doctest/doctest.h>

#include <string_view>

#define TEXT_OF(...) #__VA_ARGS__
#define EXPANDED(...) TEXT_OF(__VA_ARGS__)

namespace {

SPECULA_HD constexpr int sum_to(int n) {
  int sum = 0;
  SPECULA_UNROLL
  for (int i = 1; i <= n; ++i) sum += i;
  SPECULA_NO_UNROLL
  for (int i = n; i > 0; --i) sum += i;
  return sum;
}

}  // namespace

TEST_CASE("on the host a shared function is inline, so that a header may define it, and loops are plain") {
  CHECK(std::string_view(EXPANDED(SPECULA_HD)) == "inline");
  CHECK(std::string_view(EXPANDED(SPECULA_UNROLL)).empty());
  CHECK(std::string_view(EXPANDED(SPECULA_NO_UNROLL)).empty());
  static_assert(sum_to(4) == 20);
}
