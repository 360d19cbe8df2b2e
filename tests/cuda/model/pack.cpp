// SPDX-License-Identifier: MIT
// labels: vectorised slow
// Four pipelines over the pack on the emulated device write the CPU's text, in as many rounds.
#include "pack_pipelines.hpp"

TEST_CASE("four pipelines write the CPU's greedy text of 24 tokens, in as many rounds") {
  pack_pipelines::check(0, 4, 2, 24);
}
