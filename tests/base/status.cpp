// SPDX-License-Identifier: MIT
// Status: its numbers, which engines in other languages and device code read, and its size.
#include <specula/base/status.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>

using specula::Status;

TEST_CASE("statuses keep their numbers, and are 32 bits wide") {
  const Status all[] = {Status::ok,
                        Status::not_a_number,
                        Status::empty_row,
                        Status::overflow,
                        Status::bad_parameters,
                        Status::bad_tree,
                        Status::truncation_is_not_planned,
                        Status::infinite_loss,
                        Status::bad_draft_row,
                        Status::bad_draft_sum};
  std::int32_t numbers[10];
  static_assert(sizeof(all) == sizeof(numbers));
  std::memcpy(numbers, all, sizeof(all));
  for (std::int32_t i = 0; i < 10; ++i) CHECK(numbers[i] == i);
}
