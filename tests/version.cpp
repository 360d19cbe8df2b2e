// SPDX-License-Identifier: MIT
// The version in the headers and in the package.
#include <specula/version.hpp>

#include <doctest/doctest.h>

#include <string>

TEST_CASE("the header and the package agree on the version") {
  const auto version = std::to_string(SPECULA_VERSION_MAJOR) + "." + std::to_string(SPECULA_VERSION_MINOR) +
                       "." + std::to_string(SPECULA_VERSION_PATCH);
  CHECK(version == SPECULA_PROJECT_VERSION);
}
