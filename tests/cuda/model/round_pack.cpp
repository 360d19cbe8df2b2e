// SPDX-License-Identifier: MIT
// labels: vectorised slow
// Rounds on the emulated device over the pack write the CPU's text, in as many rounds: one prompt.
#include "round_pipelines.hpp"

using namespace round_pipelines;

TEST_CASE("rounds write the CPU's greedy text of 24 tokens, in as many rounds") {
  Pack pack;
  const std::vector<Token> prompt = prompt_of(pack, 1);
  for (int pipeline = 0; pipeline < kPipelines; ++pipeline) {
    CAPTURE(pipeline);
    const auto [on_cpu, on_device] = decode(pack, pipeline, false, 1, prompt, 24);
    CHECK(on_device.tokens == on_cpu.tokens);
    CHECK(on_device.rounds == on_cpu.rounds);
    MESSAGE(pipeline << ": " << on_cpu.rounds << " " << on_device.rounds);
  }
}
