// SPDX-License-Identifier: MIT
// Rows as engines keep them: 16-bit elements of the size of any library's, parameters as structs or arrays.
#include <specula/arrays/rows.hpp>

#include <doctest/doctest.h>

#include <type_traits>

using namespace specula;
using namespace specula::arrays;

TEST_CASE("elements and statistics are plain memory") {
  CHECK((sizeof(Half) == 2 && alignof(Half) == 2));
  CHECK((sizeof(BFloat16) == 2 && alignof(BFloat16) == 2));
  CHECK(std::is_trivially_copyable_v<RowStats>);
  CHECK(std::is_standard_layout_v<RowStats>);
}

TEST_CASE("parameters of a sequence: an array of structs, or arrays of which any may be missing") {
  const SamplingParams structs[] = {{}, {.temperature = 0.5f, .top_k = 3, .top_p = 0.7f, .min_p = 0.2f}};
  const ParamArrays all = structs;
  CHECK(all[1].temperature == 0.5f);
  CHECK(all[1].top_k == 3);
  const float temperature[] = {1, 0.5f}, top_p[] = {1, 0.7f}, min_p[] = {0, 0.2f};
  const std::int32_t top_k[] = {0, 3};
  for (int given = 0; given < 16; ++given) {
    ParamArrays some;
    if (given & 1) some.temperature = temperature;
    if (given & 2) some.top_k = top_k;
    if (given & 4) some.top_p = top_p;
    if (given & 8) some.min_p = min_p;
    const SamplingParams got = some[1];
    CHECK(got.temperature == (given & 1 ? 0.5f : 1.0f));
    CHECK(got.top_k == (given & 2 ? 3 : 0));
    CHECK(got.top_p == (given & 4 ? 0.7f : 1.0f));
    CHECK(got.min_p == (given & 8 ? 0.2f : 0.0f));
  }
}
