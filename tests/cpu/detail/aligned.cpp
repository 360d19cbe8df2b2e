// SPDX-License-Identifier: MIT
// Memory on cache lines and huge pages, and pieces of it in the order of their use.
#include <specula/cpu/detail/aligned.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

using namespace specula::cpu::detail;

namespace {

std::size_t behind(const void* at, std::size_t boundary) {
  return reinterpret_cast<std::uintptr_t>(at) % boundary;
}

}  // namespace

TEST_CASE("vectors begin on a cache line, large ones on a huge page") {
  const AlignedVector<float> small(3), large(kHugePage / sizeof(float));
  CHECK(behind(small.data(), kCacheLine) == 0);
  CHECK(behind(large.data(), kHugePage) == 0);
  CHECK_THROWS_AS(AlignedAllocator<double>().allocate(static_cast<std::size_t>(-1) / sizeof(double)),
                  std::bad_array_new_length);
}

TEST_CASE("pieces of an arena follow each other on whole cache lines, are zeros, and outlive it") {
  std::shared_ptr<int[]> first, second, large;
  {
    Arena arena;
    first = arena.take<int>(17);
    second = arena.take<int>(1);
    large = arena.take<int>(33 * kHugePage / sizeof(int));  // more than a chunk: one of its own
  }
  CHECK(behind(first.get(), kHugePage) == 0);
  CHECK(second.get() - first.get() == 32);  // two lines
  CHECK(behind(large.get(), kHugePage) == 0);
  CHECK(std::all_of(first.get(), first.get() + 17, [](int x) { return x == 0; }));
  std::fill_n(first.get(), 17, 5);
  CHECK(second[0] == 0);
  Arena arena;
  CHECK_THROWS_AS(arena.take<double>(static_cast<std::size_t>(-1) / sizeof(double)),
                  std::bad_array_new_length);
}
