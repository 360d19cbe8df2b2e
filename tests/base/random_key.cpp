// SPDX-License-Identifier: MIT
// Keys of uniform draws: no two purposes, nodes or depths of a round share one, and where each field lies in
// the Philox counter.
#include <specula/base/random_key.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <tuple>

using namespace specula;
using namespace specula::detail;

TEST_CASE("the keys of a round are distinct, and those that must be fresh change with the round") {
  for (const std::int32_t origin : {0, 10}) {  // 0: at the begin of a text
    std::set<std::tuple<std::int32_t, std::int32_t, std::uint32_t, std::uint32_t>> seen;
    std::size_t asked = 0;
    const auto ask = [&](const RandomKey& k) {
      seen.insert({k.position, k.origin, static_cast<std::uint32_t>(k.stream), k.index}), ++asked;
    };
    for (NodeId node = 1; node < 5; ++node) ask(accept_key(origin, 1, node));
    for (std::int32_t depth = 0; depth < 4; ++depth)
      ask(sample_key(origin, depth)), ask(residual_key(origin, depth)), ask(accept_key(origin, depth, 9));
    CHECK(seen.size() == asked);
  }
  // The same position in a later round: the same key for the target's own sample, others for what follows q.
  CHECK(sample_key(10, 3) == sample_key(12, 1));
  CHECK(!(residual_key(10, 3) == residual_key(12, 1)));
  CHECK(!(accept_key(10, 3, 1) == accept_key(12, 1, 1)));
}

TEST_CASE("every field of a key has a place of its own in the counter") {
  const Words at = counter_of({5, 3, RandomStream::residual, 0x00ABCDEF}, 42);
  CHECK(at.x == 5);
  CHECK(at.y == 3);
  CHECK(at.z == (1u << 24 | 0x00ABCDEFu));
  CHECK(at.w == 42);
  CHECK(uniform(0) == 0);
  CHECK(uniform(0xFFFFFFFFu) < 1);
  CHECK(uniform(0x80000000u) == 0.5);
}
