// SPDX-License-Identifier: MIT
// Fan: the likeliest next tokens.
#include <specula/shape/fan.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "proposed.hpp"

using namespace specula;
using namespace specula_test;

TEST_CASE("the likeliest tokens after the root, as many as there is room for") {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const std::int32_t limit : {2, 3, 4, 10}) {
      const RowOf rows = random_rows(6, seed, 2);
      ScriptedDrafter drafter(6, rows);
      ProposalBuilder tree(6, 10, 10);
      propose(tree, drafter, Fan{.width = 3}, limit);
      std::vector<Token> want, got;
      for (const Top& top : ranked(rows(kText))) want.push_back(top.token);
      want.resize(static_cast<std::size_t>(std::min(limit, 4) - 1));
      for (NodeId node = 1; node < tree.size(); ++node) got.push_back(tree.token(node));
      std::sort(want.begin(), want.end()), std::sort(got.begin(), got.end());
      CHECK(got == want);
    }
}
