// SPDX-License-Identifier: MIT
// labels: threads
// Deterministic top-k selection, and the last block of a launch.
#include <doctest/doctest.h>
#include <specula/cuda/detail/primitives/block/last_block.cuh>
#include <specula/cuda/detail/primitives/block/select.cuh>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "emulated_gpu.hpp"
#include "random.hpp"
#include "thread_sanitizer.hpp"

using namespace specula_test;
using specula::cuda::SerialGroup;
using specula::cuda::detail::index_of;
using specula::cuda::detail::is_last_to_arrive;
using specula::cuda::detail::rank_value;
using specula::cuda::detail::ranked;
using specula::cuda::detail::Select;
using specula::cuda::detail::TwoNumbers;
using specula::cuda::detail::value_of;

namespace {

using Values = std::vector<std::uint64_t>;

/// The indices of the k first, by a full sort.
std::vector<int> plain(const Values& values, int k) {
  std::vector<int> out;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != 0) out.push_back(static_cast<int>(i));
  std::sort(out.begin(), out.end(), [&](int a, int b) {
    const std::uint64_t x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  if (out.size() > static_cast<std::size_t>(std::max(0, k)))
    out.resize(static_cast<std::size_t>(std::max(0, k)));
  return out;
}

/// The results of a group's variants.
struct Found {
  std::vector<int> counts;
  std::vector<std::int32_t> chosen;        // indices in order
  std::vector<std::uint64_t> best, first;  // in order
};

/// Different numbers in the order of `values`: larger for larger values, then for lower indices.
Values distinct(const Values& values) {
  Values out(values.size(), 0);
  const std::vector<int> order = plain(values, static_cast<int>(values.size()));
  for (std::size_t i = 0; i < order.size(); ++i)
    out[static_cast<std::size_t>(order[i])] = std::numeric_limits<std::uint64_t>::max() - i;
  return out;
}

template <class Group>
void all_ways(Group group, const Values& values, const Values& numbers, int k, unsigned char* shared,
              Found& found) {
  const int n = static_cast<int>(values.size()), room = std::max(0, k);
  const auto end = static_cast<std::size_t>(room);
  Select<Group> select(group, n, n, shared);
  auto* out = reinterpret_cast<std::uint64_t*>(shared + Select<Group>::shared_bytes(n, n));
  auto* indices = reinterpret_cast<std::int32_t*>(out + room + 1);
  if (group.rank() == 0) out[end] = 77, indices[end] = 77;  // beyond the k results
  for (int again = 0; again < 2; ++again) {
    select.read(n, [&](int i) { return values[static_cast<std::size_t>(i)]; });
    const int chosen = select.choose(k, [&](int i, int place) { indices[place] = i; });
    select.read(n, [&](int i) { return numbers[static_cast<std::size_t>(i)]; });
    const int best = select.best(k, out);
    if (group.rank() == 0) {
      found.counts.insert(found.counts.end(), {chosen, best});
      found.chosen.assign(indices, indices + chosen);
      found.best.assign(out, out + best);
    }
    group.sync();
    for (int i = group.rank(); i < n; i += group.size())
      if (numbers[static_cast<std::size_t>(i)] != 0 && k > 0)
        select.add(numbers[static_cast<std::size_t>(i)]);
    const int first = select.first(room, out);
    if (group.rank() == 0) {
      found.counts.push_back(first);
      found.first.assign(out, out + first);
      CHECK(out[end] == 77);
      CHECK(indices[end] == 77);
    }
    group.sync();
  }
}

void check(const Values& values, const Values& numbers, int k, const Found& found) {
  const std::vector<int> expected = plain(values, k);
  CHECK(found.counts == std::vector<int>(6, static_cast<int>(expected.size())));
  std::vector<std::int32_t> indices(expected.begin(), expected.end());
  std::vector<std::uint64_t> best;
  for (const int i : expected) best.push_back(numbers[static_cast<std::size_t>(i)]);
  std::sort(indices.begin(), indices.end());
  CHECK(found.chosen == indices);
  CHECK(found.best == best);
  CHECK(found.first == best);
}

void check_all(const Values& values, int k, std::uint64_t seed, Engine engine = Engine::fibers) {
  CAPTURE(values.size());
  CAPTURE(k);
  const Values numbers = distinct(values);
  const std::size_t room = static_cast<std::size_t>(std::max(0, k)) + 1;
  const auto bytes = [&](std::size_t select) {
    return select + room * (sizeof(std::uint64_t) + sizeof(std::int32_t));
  };
  const int n = static_cast<int>(values.size());
  {
    Found found;
    std::vector<TwoNumbers> serial(bytes(Select<SerialGroup>::shared_bytes(n, n)) / sizeof(TwoNumbers) + 1);
    all_ways(SerialGroup{}, values, numbers, k, reinterpret_cast<unsigned char*>(serial.data()), found);
    check(values, numbers, k, found);
  }
  for (const int threads : {32, 64, 256, 512}) {
    if (engine == Engine::threads && threads > 64) break;
    Found found;
    emulate({.threads = threads,
             .shared_bytes = bytes(Select<EmulatedBlock>::shared_bytes(n, n)),
             .seed = seed,
             .engine = engine},
            [&](EmulatedCluster cluster, int, unsigned char* shared) {
              all_ways(cluster.block(), values, numbers, k, shared, found);
            });
    check(values, numbers, k, found);
  }
  Found found;
  emulate({.threads = 32,
           .shared_bytes = bytes(Select<EmulatedWarp>::shared_bytes(n, n)),
           .seed = seed,
           .engine = engine},
          [&](EmulatedCluster cluster, int, unsigned char* shared) {
            all_ways(cluster.block().warp(), values, numbers, k, shared, found);
          });
  check(values, numbers, k, found);
}

Values random_values(Random& random, int n, int kinds, double nothing) {
  Values out(static_cast<std::size_t>(n));
  for (std::uint64_t& v : out) {
    v = kinds == 0 ? random.bits() | 1 : 1 + static_cast<std::uint64_t>(random.below(kinds));
    if (random.bernoulli(nothing)) v = 0;
  }
  return out;
}

}  // namespace

UNTHREADED_TEST_CASE("the k first by value, then by index: one thread, a warp and blocks give the same") {
  Random random(71);
  for (const int n : {0, 1, 2, 31, 33, 100, 127, 128, 129, 251, 300, 510, 1500})
    for (const int k : {1, 2, 10, 59, 130}) {
      const int kinds = random.bernoulli(0.5) ? 0 : 1 + random.below(20);
      check_all(random_values(random, n, kinds, random.bernoulli(0.3) ? 0.5 : 0), k, random.bits());
    }
}

UNTHREADED_TEST_CASE("all ties, no elements, ascending and descending, k = 0, and the largest value") {
  const Values alike(300, 7), none(300, 0);
  check_all(alike, 10, 1);
  check_all(alike, 299, 2);
  check_all(none, 10, 3);
  check_all(alike, 0, 4);
  check_all(alike, -3, 5);
  Values rising(400), falling(400);
  for (std::size_t i = 0; i < 400; ++i) rising[i] = i, falling[i] = 400 - i;
  check_all(rising, 32, 6);
  check_all(falling, 32, 7);
  Values few(300, 0);  // fewer than k, in different lanes
  few[17] = few[250] = std::numeric_limits<std::uint64_t>::max();
  few[16] = 1;
  check_all(few, 3, 8);
  check_all(few, 4, 9);
}

TEST_CASE("concurrent threads") {
  Random random(72);
  check_all(random_values(random, 140, 9, 0.2), 12, 1, Engine::threads);
}

UNTHREADED_TEST_CASE(
    "keys have the order of logits and probabilities; both zeros have one key, a missing element has 0") {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {-3.4e38f, -2.0f, -1.0f, -1e-42f, 0.0f, 1e-45f, 1e-42f, 1.0f, 3.4e38f};
  for (std::size_t i = 1; i < logits.size(); ++i) CHECK(rank_value(logits[i - 1]) < rank_value(logits[i]));
  CHECK(rank_value(-0.0f) == rank_value(0.0f));
  CHECK(rank_value(-inf) == 0);
  CHECK(rank_value(-3.4028235e38f) > 0);
  const std::vector<double> probabilities = {0.0, 5e-324, 1e-300, 0.25, std::nextafter(0.25, 1), 1.0};
  for (std::size_t i = 1; i < probabilities.size(); ++i)
    CHECK(rank_value(probabilities[i - 1]) < rank_value(probabilities[i]));
  CHECK(rank_value(0.0) > 0);
  CHECK(rank_value(-1.0) == 0);
  CHECK(ranked(0, 3) == 0);
  CHECK(ranked(2, 9) > ranked(1, 0));
  CHECK(ranked(2, 0) > ranked(2, 1));
  CHECK(ranked(1, 0x7FFFFFFF) > 0);
  CHECK(value_of(ranked(0xFFFFFFFFu, 12345)) == 0xFFFFFFFFu);
  CHECK(index_of(ranked(7, 12345)) == 12345);
}

TEST_CASE("one of many blocks is the last; it sees the others' writes, and the counter is restored") {
  for (const Engine engine : {Engine::fibers, Engine::threads})
    for (std::uint64_t seed = 0; seed < (engine == Engine::fibers ? 40 : 2); ++seed) {
      std::vector<std::int32_t> arrived(2, 0), written(4 * 32, 0), sums;
      // Two launches on one counter, with concurrent blocks.
      for (int launch = 1; launch <= 2; ++launch)
        emulate({.blocks = 4, .threads = 32, .shared_bytes = 16, .seed = seed, .engine = engine},
                [&](EmulatedCluster cluster, int, unsigned char* shared) {
                  auto* flag = reinterpret_cast<std::int32_t*>(shared);
                  const auto block = cluster.block();
                  written[static_cast<std::size_t>(32 * cluster.rank() + block.rank())] = launch;
                  if (!is_last_to_arrive(block, arrived.data() + 1, 4, flag)) return;
                  if (block.rank() == 31) sums.push_back(std::accumulate(written.begin(), written.end(), 0));
                });
      CHECK(sums == std::vector<std::int32_t>{128, 256});
      CHECK(arrived == std::vector<std::int32_t>{0, 0});
    }
}
