// SPDX-License-Identifier: MIT
// Decoding with the embedded models: a round of each pipeline, with tokens per second, tokens per round, and
// the library's own share of the time.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

namespace {

using namespace specula;

cpu::DecoderOptions options() {
  cpu::DecoderOptions o;
  o.capacity = 1024;
  o.inputs = cpu::bf16_products_pay() ? cpu::Inputs::bf16 : cpu::Inputs::full;
  return o;
}
cpu::Decoder<float> load(const char* name) {
  return cpu::Decoder<float>(std::string(SPECULA_MODELS_DIR "/") + name, options());
}

/// Rounds from a fixed prompt of 32 tokens up to 256 new ones, repeatedly.
template <class Shape, class MakeDrafter>
void rounds(benchmark::State& state, Shape shape, const SamplingParams& params, MakeDrafter make_drafter) {
  auto target = load("target");
  std::optional<cpu::Decoder<float>> draft;
  Speculator run{TreeVerifier{target, Sampling{}, params}, make_drafter(target, draft), shape};
  std::vector<Token> prompt{1};
  for (Token t = 0; t < 31; ++t) prompt.push_back(300 + t * 37 % 1500);
  PhiloxRandom rng{1};
  run.start(prompt);
  for (auto _ : state) {
    if (run.text().size() > prompt.size() + 256) {
      state.PauseTiming();
      run.forget();
      run.start(prompt);
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(run.step(rng).data());
  }
  state.counters["tokens_per_second"] = run.stats().tokens_per_second();
  state.counters["mat"] = run.stats().mat();
  state.counters["overhead_share"] = run.stats().overhead_share();
}

const auto kNobody = [](cpu::Decoder<float>& target, std::optional<cpu::Decoder<float>>&) {
  return NoDrafter{target.vocab_size()};
};
const auto kSmall = [](cpu::Decoder<float>&, std::optional<cpu::Decoder<float>>& draft) {
  return ModelDrafter{draft.emplace(load("small"))};
};
const auto kBase = [](cpu::Decoder<float>&, std::optional<cpu::Decoder<float>>& draft) {
  return ModelDrafter{draft.emplace(load("base"))};
};

const SamplingParams kGreedy{.temperature = 0.0f};
const SamplingParams kWarm{.temperature = 0.8f};

BENCHMARK_CAPTURE(rounds, autoregressive_greedy, Chain<>{.length = 0}, kGreedy, kNobody)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rounds, chain_2_greedy, Chain<>{.length = 2}, kGreedy, kSmall)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rounds, chain_4_greedy, Chain<>{.length = 4}, kGreedy, kSmall)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rounds, chain_4_base_greedy, Chain<>{.length = 4}, kGreedy, kBase)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rounds, autoregressive_sampled, Chain<>{.length = 0}, kWarm, kNobody)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rounds, sampled_chain_2, Chain<Draw::sampled>{.length = 2}, kWarm, kSmall)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rounds, sampled_chain_4, Chain<Draw::sampled>{.length = 4}, kWarm, kSmall)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
