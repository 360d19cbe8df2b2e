// SPDX-License-Identifier: MIT
// Layout of matrices in panels: strides, pairs of bfloat16, and groups of columns.
#include <specula/cpu/detail/panel.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

using namespace specula::cpu::detail;

TEST_CASE("vectors are whole panels apart, and never a multiple of 4096 bytes") {
  CHECK(round_up(0, 16) == 0);
  CHECK(round_up(17, 16) == 32);
  CHECK(column_stride<float>(1) == 16);
  CHECK(column_stride<float>(1024) == 1024 + 16);
  CHECK(column_stride<double>(512) == 512 + 16);
  for (std::int32_t size = 1; size < 5000; ++size) {
    const std::int32_t stride = column_stride<float>(size);
    CHECK((stride >= size && stride % kPanel == 0 && stride * 4 % 4096 != 0));
  }
}

TEST_CASE("either half of a pair of bfloat16") {
  const std::uint32_t pair = 0xC0203F80;  // -2.5 and 1
  CHECK(bf16_half<float>(pair, false) == 1.0f);
  CHECK(bf16_half<double>(pair, true) == -2.5);
}

TEST_CASE("groups of columns: all of them, in order, as even as possible") {
  for (std::int32_t columns = 0; columns < 60; ++columns)
    for (const std::int32_t most : {1, 5, 12}) {
      std::int32_t next = 0, fewest = most, largest = 0, groups = 0;
      for_column_groups(columns, most, [&](std::int32_t first, std::int32_t count) {
        CHECK(first == next);
        next = first + count;
        fewest = std::min(fewest, count), largest = std::max(largest, count), ++groups;
      });
      CHECK(next == columns);
      CHECK(groups == (columns + most - 1) / most);
      CHECK(largest <= most);
      if (groups > 0) CHECK(largest - fewest <= 1);
    }
}
