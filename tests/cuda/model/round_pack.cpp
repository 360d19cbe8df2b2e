// SPDX-License-Identifier: MIT
// labels: vectorised slow
// Rounds on the emulated device over the pack write the CPU's text, in as many rounds: one prompt by all
// pipelines, and eight prompts of longer texts, of which rounding changes few.
#include <cstdlib>
#include <string>

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

TEST_CASE("texts of 64 tokens of eight prompts, greedily and by draws of one seed") {
  Pack pack;
  constexpr int kFresh = 64, kAll[] = {0, 1, 2, 3, 5};  // chain, dynamic tree, CAPE, HASS tree, GLIDE chain
  const int each = std::getenv("SPECULA_TEST_THOROUGH") ? 5 : 1;  // pipelines of a prompt
  for (const bool draws : {false, true}) {
    int prompts = 0, texts = 0, other_texts = 0, other_rounds = 0;
    for (std::uint64_t seed = 1; prompts < 8; ++seed) {
      const std::vector<Token> prompt = prompt_of(pack, seed);
      if (!is_stable(pack, prompt, draws, kFresh)) continue;
      for (int i = 0; i < each; ++i, ++texts) {
        const int pipeline = kAll[(prompts + i + (draws ? 2 : 0)) % 5];
        const auto [on_cpu, on_device] = decode(pack, pipeline, draws, 1, prompt, kFresh);
        const bool same = on_device.tokens == on_cpu.tokens;
        if (!same)
          ++other_texts;
        else if (on_device.rounds != on_cpu.rounds)
          ++other_rounds;
        MESSAGE(std::string(draws ? "drawn" : "greedy")
                << ", prompt " << seed << ", pipeline " << pipeline
                << std::string(same ? ": " : ": another text, ") << on_cpu.rounds << " " << on_device.rounds);
      }
      ++prompts;
    }
    CHECK(other_texts <= texts / 8);
    CHECK(other_rounds <= texts / 5);
  }
}
