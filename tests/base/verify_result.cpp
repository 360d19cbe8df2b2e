// SPDX-License-Identifier: MIT
// VerifyResult: the accepted path and the next token.
#include <specula/base/rows.hpp>

#include <doctest/doctest.h>

TEST_CASE("a cleared result holds the root, which accepted_count() does not count") {
  specula::VerifyResult v;
  v.accepted = {0, 2, 5};
  v.next_token = 7;
  CHECK(v.accepted_count() == 2);
  v.clear();
  CHECK(v.accepted == std::vector<specula::NodeId>{0});
  CHECK(v.next_token == specula::kNoToken);
  CHECK(v.accepted_count() == 0);
}
