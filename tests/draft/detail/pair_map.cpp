// SPDX-License-Identifier: MIT
// PairMap: a hash map from pairs of integers.
#include <specula/draft/detail/pair_map.hpp>

#include <doctest/doctest.h>

#include <map>
#include <utility>

#include "count_allocations.hpp"
#include "random.hpp"

using specula::detail::PairMap;
using specula_test::AllocationCount;
using specula_test::Random;

TEST_CASE("PairMap agrees with std::map") {
  for (const std::int32_t range : {3, 40, 1 << 30}) {
    Random random(static_cast<std::uint64_t>(range));
    PairMap<int> map;
    std::map<std::pair<std::int32_t, std::int32_t>, int> want;
    for (int step = 0; step < 20000; ++step) {
      const std::int32_t a = random.below(range), b = random.below(range) - range / 2;  // b of any sign
      const auto known = want.find({a, b});
      const int* found = map.find(a, b);
      REQUIRE((found != nullptr) == (known != want.end()));
      if (found) REQUIRE(*found == known->second);
      if (random.bernoulli(0.7)) map.at(a, b) = want[{a, b}] = step;
      if (random.bernoulli(0.0005)) map.clear(), want.clear();
      REQUIRE(map.size() == want.size());
    }
    map.at(1, -1) += 0;  // not empty
    want.insert({{1, -1}, 0});
    std::size_t seen = 0;
    map.for_each([&](std::int32_t a, std::int32_t b, int value) {
      ++seen;
      const auto known = want.find({a, b});
      REQUIRE(known != want.end());
      CHECK(known->second == value);
    });
    CHECK(seen == want.size());
  }
}

TEST_CASE("an empty map holds nothing; a new value is Value{}") {
  PairMap<int> map;
  CHECK(map.find(0, 0) == nullptr);
  map.clear();
  CHECK(map.at(7, 7) == 0);
  CHECK(map.size() == 1);
}

TEST_CASE("reserve(n) suffices for n pairs, and clear() keeps the memory") {
  for (int n = 1; n < 200; ++n) {
    PairMap<int> map;
    map.reserve(static_cast<std::size_t>(n));
    const AllocationCount allocated;
    for (int twice = 0; twice < 2; ++twice) {
      for (int i = 0; i < n; ++i) map.at(i, 5) = i;
      map.clear();
    }
    const auto count = allocated.count();
    REQUIRE(count == 0);
  }
}
