// SPDX-License-Identifier: MIT
// labels: vectorised slow
// The other four pipelines of pack_long.cpp: each half takes minutes.
#include "pack_pipelines.hpp"

TEST_CASE("four more pipelines write the CPU's greedy texts of 64 tokens, in as many rounds") {
  pack_pipelines::check(4, pack_pipelines::kPipelines - 4, 8, 64);
}
