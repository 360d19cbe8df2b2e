// SPDX-License-Identifier: MIT
// labels: vectorised slow
// Rounds on the emulated device over the pack write the CPU's text, in as many rounds: one prompt by all
// pipelines, and eight prompts of longer texts, of which rounding changes few. And the law of what drawn
// chains emit, against enumeration, over tables of bigrams.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "bigram_model.hpp"
#include "round_pipelines.hpp"

using namespace round_pipelines;
using namespace bigram_model;

namespace {

/// The three tokens after token 2, as a number.
using Counts = std::array<int, kTokens * kTokens * kTokens>;
template <class Shape, class Rule>
Counts counts_of(const Shape& shape, const Rule& rule, int texts) {
  EmulatedDevice device;
  const auto target = weights_of(device, kTarget, 32), draft = weights_of(device, kDraft, 32);
  cuda::Round run(device, target, draft, shape, rule, {.capacity = 32, .params = {.temperature = 1}});
  const std::vector<Token> prompt{2};  // nothing to read before the first round
  Counts out{};
  for (int seed = 1; seed <= texts; ++seed) {
    int text = 0;
    run.generate(prompt, {.max_new_tokens = 3}, static_cast<std::uint64_t>(seed), [&](Tokens part) {
      for (const Token token : part) text = text * kTokens + token;
    });
    ++out[static_cast<std::size_t>(text)];
  }
  return out;
}

/// Of the counts and the law of the target alone; 63 degrees of freedom.
double chi_square(const Counts& counts, int texts) {
  const Table p = rounded(kTarget);
  double out = 0;
  for (std::size_t text = 0; text < counts.size(); ++text) {
    const std::size_t a = text / 16, b = text / 4 % 4, c = text % 4;
    const double expected = texts * p[2][a] * p[a][b] * p[b][c];
    out += (counts[text] - expected) * (counts[text] - expected) / expected;
  }
  return out;
}

}  // namespace

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

TEST_CASE("drawn chains emit the target's law, by every rule") {
  // 63 degrees of freedom: above 113 in one of 10,000.
  const Chain<Draw::sampled> chain{.length = 2};
  CHECK(chi_square(counts_of(chain, Rejection{}, 5000), 5000) < 113);
  CHECK(chi_square(counts_of(chain, Block{}, 1000), 1000) < 113);
}
