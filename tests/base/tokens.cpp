// SPDX-License-Identifier: MIT
// Tokens and nodes, which CPU and CUDA share: 32 bits, and none of them is no index.
#include <specula/base/tokens.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>

TEST_CASE("tokens and nodes are signed numbers of 32 bits; no token and no parent are negative") {
  CHECK(std::is_same_v<specula::Token, std::int32_t>);
  CHECK(std::is_same_v<specula::NodeId, std::int32_t>);
  CHECK(specula::kNoToken < 0);
  CHECK(specula::kNoParent < 0);
}
