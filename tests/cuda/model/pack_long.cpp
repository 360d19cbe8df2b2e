// SPDX-License-Identifier: MIT
// labels: vectorised slow
// Four pipelines over the pack on the emulated device, on eight prompts; pack_long_more.cpp has the others.
#include "pack_pipelines.hpp"

TEST_CASE("four pipelines write the CPU's greedy texts of 64 tokens, in as many rounds") {
  pack_pipelines::check(0, 4, 8, 64);
}
