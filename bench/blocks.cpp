// Attention blocks beside MLP blocks of the embedded target: what a pass over them takes, and how much they
// change the residual stream (Table 1 of Draft on the Fly, Metel et al. 2024). SPECULA_BENCH_MODEL=FOLDER
// takes another model.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <specula/eigen/llama.hpp>
#include <specula/specula.hpp>

namespace {

using namespace specula;

const std::shared_ptr<const eigen::LlamaWeights<float>>& weights() {
  static const auto loaded = [] {
    const char* const folder = std::getenv("SPECULA_BENCH_MODEL");
    return std::make_shared<const eigen::LlamaWeights<float>>(
        eigen::load_llama_weights<float>(folder ? folder : SPECULA_MODELS_DIR "/target"));
  }();
  return loaded;
}

/// What the model itself writes at temperature 1 after its token 1: text as it expects it, without a
/// tokenizer.
std::vector<Token> own_text(std::uint64_t seed, std::int32_t tokens) {
  eigen::Llama<float> model(weights(), {.capacity = tokens + 2});
  Speculator run{TreeVerifier{model, Sampling{}}, NoDrafter{model.vocab_size()}, Chain<>{.length = 0}};
  PhiloxRandom rng{seed};
  run.start(std::vector<Token>{1});
  while (run.text().size() < static_cast<std::size_t>(tokens)) run.step(rng);
  return {run.text().begin(), run.text().begin() + tokens};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// A pass over a chain of nodes, whole, without attention, without MLPs and without either, in turns.
/// Counters, in microseconds, of the medians: what one block of each kind adds to the pass (averaged over the
/// two pairs of passes that differ in nothing else, and over the layers), and what is left: embedding, final
/// norm, LM head.
void times(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const auto nodes = static_cast<std::int32_t>(state.range(0)),
             context = static_cast<std::int32_t>(state.range(1));
  eigen::Llama<float> model(weights(), {.capacity = context + nodes + 1, .max_nodes = nodes});
  const std::vector<Token> text = own_text(1, context + nodes);
  model.append(Tokens(text).first(static_cast<std::size_t>(context)));
  model.key_values();  // nothing waits
  std::vector<NodeId> parents(static_cast<std::size_t>(nodes));
  std::iota(parents.begin(), parents.end(), kNoParent);
  const std::int32_t layers = model.layers();
  std::array<SkippedBlocks, 4> skipped;  // bit 0: attention is left out, bit 1: MLPs are
  for (std::size_t kind = 0; kind < 4; ++kind) {
    skipped[kind] = SkippedBlocks(layers);
    skipped[kind].attention.assign(skipped[kind].attention.size(), kind % 2 != 0);
    skipped[kind].mlp.assign(skipped[kind].mlp.size(), kind >= 2);
  }
  std::array<std::vector<double>, 4> times_of;
  std::size_t round = 0;
  for (auto _ : state) {
    ++round;
    for (std::size_t turn = 0; turn < 4; ++turn) {
      const std::size_t kind = (round + turn) % 4;
      model.truncate(context);
      const auto begin = Clock::now();
      benchmark::DoNotOptimize(model
                                   .extend_skipping(Tokens(text).subspan(static_cast<std::size_t>(context)),
                                                    parents, skipped[kind])
                                   .data);
      times_of[kind].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  std::array<double, 4> us{};
  for (std::size_t kind = 0; kind < 4; ++kind) us[kind] = 1e6 * median(times_of[kind]);
  state.counters["attention_us"] = (us[0] - us[1] + us[2] - us[3]) / 2 / layers;
  state.counters["mlp_us"] = (us[0] - us[2] + us[1] - us[3]) / 2 / layers;
  state.counters["rest_us"] = us[3];
}
BENCHMARK(times)
    ->ArgNames({"nodes", "context"})
    ->ArgsProduct({{1, 4, 16, 64}, {128, 512}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// Over the layers: the mean cosine of what goes into a block and what comes out of it, its input added,
/// averaged over texts of 256 tokens that the model wrote. The time is that of reading one of them.
void similarity(benchmark::State& state) {
  constexpr std::int32_t kTokens = 256;
  constexpr std::uint64_t kTexts = 16;
  eigen::Llama<float> model(
      weights(),
      {.capacity = kTokens + 1, .max_nodes = 1, .measure_similarity = true, .measure_mlp_similarity = true});
  std::vector<std::vector<Token>> texts;
  for (std::uint64_t seed = 0; seed < kTexts; ++seed) texts.push_back(own_text(seed, kTokens));
  const auto add = [&](std::vector<double>& sums, std::span<const double> cosines) {
    sums.resize(cosines.size());
    for (std::size_t l = 0; l < cosines.size(); ++l) sums[l] += cosines[l] / static_cast<double>(kTexts);
  };
  std::vector<double> attention, mlp;
  for (const auto& text : texts) {
    model.truncate(0);
    model.append(text);
    add(attention, model.similarity());
    add(mlp, model.mlp_similarity());
  }
  const auto count = [&](const std::string& name, const std::vector<double>& values) {
    state.counters[name + "_min"] = *std::min_element(values.begin(), values.end());
    state.counters[name + "_median"] = median(values);
    state.counters[name + "_mean"] =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    state.counters[name + "_max"] = *std::max_element(values.begin(), values.end());
  };
  count("attention", attention);
  count("mlp", mlp);
  for (auto _ : state) {
    model.truncate(0);
    model.append(texts[0]);
    model.key_values();
  }
}
BENCHMARK(similarity)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
