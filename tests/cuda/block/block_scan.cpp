// labels: threads cuda-only
#include <doctest/doctest.h>
#include <specula/cuda/block/block_scan.cuh>

#include <cstdint>
#include <limits>
#include <vector>

#include "emulated_gpu.hpp"
#include "random.hpp"
#include "thread_sanitizer.hpp"

using namespace specula_test;
using specula::cuda::detail::BlockScan;

namespace {

template <class T>
std::vector<T> random_values(Random& random, std::size_t n) {
  std::vector<T> out(n);
  for (T& v : out) v = static_cast<T>(random.chance(0.3) ? 0 : random.bits());  // sums wrap
  return out;
}

/// Both sums of the same values, one after the other in the same memory.
template <class T, int threads, int items>
void check(std::uint64_t seed, Engine engine = Engine::fibers) {
  Random random(seed);
  using Scan = BlockScan<EmulatedBlock, T, threads>;
  const std::vector<T> values = random_values<T>(random, threads * items);
  std::vector<T> exclusive(values.size()), inclusive(values.size());
  std::vector<T> all(2 * threads);
  emulate({.threads = threads, .shared_bytes = Scan::shared_bytes(), .seed = seed, .engine = engine},
          [&](EmulatedCluster cluster, int, unsigned char* shared) {
            const EmulatedBlock block = cluster.block();
            const Scan scan(block, shared);
            const auto rank = static_cast<std::size_t>(block.rank());
            T mine[items];
            for (std::size_t i = 0; i < items; ++i) mine[i] = values[rank * items + i];
            all[2 * rank] = scan.exclusive_sum(mine);
            for (std::size_t i = 0; i < items; ++i) exclusive[rank * items + i] = mine[i];
            block.sync();
            for (std::size_t i = 0; i < items; ++i) mine[i] = values[rank * items + i];
            all[2 * rank + 1] = scan.inclusive_sum(mine);
            for (std::size_t i = 0; i < items; ++i) inclusive[rank * items + i] = mine[i];
          });
  T sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    REQUIRE(exclusive[i] == sum);
    sum = static_cast<T>(sum + values[i]);
    REQUIRE(inclusive[i] == sum);
  }
  for (const T a : all) REQUIRE(a == sum);
}

}  // namespace

UNTHREADED_TEST_CASE("sums before and through each number, and of all of them, wrapping") {
  check<std::uint32_t, 32, 1>(1);
  check<std::uint32_t, 64, 3>(2);
  check<std::uint64_t, 32, 5>(3);
  check<std::uint64_t, 256, 16>(4);  // a histogram of 4,096 keys
  check<std::uint32_t, 384, 11>(5);
}

TEST_CASE("threads of their own") { check<std::uint64_t, 64, 4>(6, Engine::threads); }
