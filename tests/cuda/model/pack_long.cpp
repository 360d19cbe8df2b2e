// SPDX-License-Identifier: MIT
// labels: vectorised slow
// Eight pipelines over the pack on the emulated device, on eight prompts.
#include "pack_pipelines.hpp"

TEST_CASE("eight pipelines write the CPU's greedy texts of 64 tokens, in as many rounds") {
  pack_pipelines::check(pack_pipelines::kPipelines, 8, 64);
}
