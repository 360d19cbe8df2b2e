// SPDX-License-Identifier: MIT
// Many texts at once, on one thread: a pass by its rows, a merged pass against one over as many nodes of one
// text, and rounds of 1 to 32 texts, plainly, with chains, and with one budget. The models are the pack's
// `target` and `small`, or the folders that SPECULA_BATCH_TARGET and SPECULA_BATCH_DRAFT name; weights stay
// as their files have them. `plain_again` is plain decoding once more: its distance from `plain` is the
// noise.
//
//   bench_batch --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <specula/batch/batch_speculator.hpp>
#include <specula/cpu/decoder.hpp>
#include <specula/specula.hpp>

namespace {

using namespace specula;
using Model = cpu::Decoder<float>;

std::string folder_of(const char* variable, const char* name) {
  const char* const given = std::getenv(variable);
  return given ? given : std::string(SPECULA_MODELS_DIR "/") + name;
}
/// Loaded once; models over the same weights are made from it.
const std::shared_ptr<const cpu::DecoderWeights<float>>& weights_of(bool draft) {
  using Weights = cpu::DecoderWeights<float>;
  static const auto target = std::make_shared<const Weights>(
      cpu::load_decoder_weights<float>(folder_of("SPECULA_BATCH_TARGET", "target")));
  static const auto small = std::make_shared<const Weights>(
      cpu::load_decoder_weights<float>(folder_of("SPECULA_BATCH_DRAFT", "small"), target));
  return draft ? small : target;
}
std::unique_ptr<Model> model_of(bool draft, std::int32_t slots, std::int32_t nodes, std::int32_t capacity) {
  cpu::DecoderOptions options;
  options.slots = slots, options.max_nodes = nodes, options.capacity = capacity + nodes;
  options.inputs = cpu::bf16_products_pay() ? cpu::Inputs::bf16 : cpu::Inputs::full;
  return std::make_unique<Model>(weights_of(draft), options);
}
std::vector<Token> prompt_of(std::int32_t text, std::int32_t tokens) {
  std::vector<Token> prompt{1};
  for (std::int32_t t = 1; t < tokens; ++t) prompt.push_back(300 + (t * 37 + text * 101) % 1500);
  return prompt;
}
/// Each text's tokens, `each` siblings below its context.
struct Siblings {
  Siblings(std::int32_t texts, std::int32_t each)
      : tokens(static_cast<std::size_t>(each)), parents(tokens.size(), kNoParent) {
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(300 + 7 * i % 1500);
    for (std::int32_t text = 0; text < texts; ++text) of_texts.push_back({text, tokens, parents});
  }
  std::vector<Token> tokens;
  std::vector<NodeId> parents;
  std::vector<SlotNodes> of_texts;
};

/// Texts that have read a prompt of `context` tokens. Kept for all cases and repetitions, since 32 texts of
/// 2,000 tokens take longer to read than all passes over them; one is read, and the others are forks of it.
Model& read_texts(bool draft, std::int32_t texts, std::int32_t context) {
  static std::map<std::tuple<bool, std::int32_t, std::int32_t>, std::unique_ptr<Model>> kept;
  std::unique_ptr<Model>& model = kept[{draft, texts, context}];
  if (model) return *model;
  model = model_of(draft, texts, texts > 1 ? 1 : 256, context);  // nodes of each
  model->append(0, prompt_of(0, context));
  const Siblings one(1, 1);
  model->extend(one.of_texts), model->truncate(0, context);
  for (std::int32_t text = 1; text < texts; ++text) {
    model->append(text, prompt_of(0, context));
    model->fork(0, text, context);
  }
  return *model;
}

/// One pass over texts x each nodes, after a context.
void pass(benchmark::State& state, bool draft) {
  const auto texts = static_cast<std::int32_t>(state.range(0)),
             each = static_cast<std::int32_t>(state.range(1)),
             context = static_cast<std::int32_t>(state.range(2));
  Model* const model = &read_texts(draft, texts, context);
  const Siblings nodes(texts, each);
  for (auto _ : state) {
    benchmark::DoNotOptimize(model->extend(nodes.of_texts).data);
    for (std::int32_t text = 0; text < texts; ++text) model->truncate(text, context);
  }
  state.counters["rows"] = texts * each;
}

using Slots = std::vector<SlotOf<Model>>;
struct Make {
  Slots *targets, *drafts;
  std::int32_t length;
  auto operator()(std::int32_t slot) const {
    const auto s = static_cast<std::size_t>(slot);
    return Speculator{TreeVerifier{(*targets)[s], Sampling{}}, ModelDrafter{(*drafts)[s]},
                      Chain<>{.length = length}};
  }
};
/// Always as many texts, of 64 new tokens each after 32. Kept for all repetitions, which go on with it.
struct Rounds {
  Rounds(std::int32_t texts, std::int32_t length, bool shares)
      : count(texts),
        target(model_of(false, texts, length + 1, 128)),
        draft(model_of(true, texts, length + 1, 128)) {
    for (std::int32_t slot = 0; slot < texts; ++slot)
      targets.emplace_back(*target, slot), drafts.emplace_back(*draft, slot);
    batch = std::make_unique<BatchSpeculator<Make, Model, Model>>(texts, Make{&targets, &drafts, length},
                                                                  *draft, *target);
    if (shares) batch->share(BatchBudget());
    for (int i = 0; i < (shares ? 60 : 2); ++i) fill(), batch->step();
  }
  /// Texts join until the batch is full, and read their prompts. Those of the first round have different
  /// lengths, so that later they end one by one.
  void fill() {
    bool fresh = false;
    while (batch->running() + batch->queued() < count) {
      TextRequest request;
      request.prompt = prompt_of(joined, 32);
      request.max_new_tokens = joined < count ? 8 + 56 * joined / count : 64;
      request.params.temperature = 0;
      request.sink = [this](Tokens more) {
        tokens += static_cast<std::int64_t>(more.size());
        return true;
      };
      batch->join(std::move(request));
      ++joined, fresh = true;
    }
    if (fresh) batch->step();
  }
  double pass_seconds() const {
    double seconds = 0;
    for (std::int32_t slot = 0; slot < count; ++slot)
      seconds += target->pass_seconds(slot) + draft->pass_seconds(slot);
    return seconds;
  }
  std::int32_t count;
  std::unique_ptr<Model> target, draft;
  Slots targets, drafts;
  std::unique_ptr<BatchSpeculator<Make, Model, Model>> batch;
  std::int64_t tokens = 0;
  std::int32_t joined = 0;
};
struct Way {
  const char* name;
  std::int32_t length;
  bool shares;
};
constexpr Way kWays[] = {{"plain", 0, false},   {"plain_again", 0, false}, {"chain_1", 1, false},
                         {"chain_2", 2, false}, {"chain_4", 4, false},     {"budget", 6, true}};

/// A round of each way, one after the other, so that a machine that becomes slower does so for all of them.
/// Rounds in which a prompt is read are left out.
void rounds(benchmark::State& state) {
  const auto texts = static_cast<std::int32_t>(state.range(0));
  static std::map<std::int32_t, std::vector<std::unique_ptr<Rounds>>> kept;
  std::vector<std::unique_ptr<Rounds>>& runs = kept[texts];
  struct Sum {
    double cpu = 0, inside = 0, all = 0;
    std::int64_t tokens = 0, rounds = 0;
  };
  std::vector<Sum> sums(std::size(kWays));
  for (const Way& way : kWays)
    if (runs.size() < std::size(kWays))
      runs.push_back(std::make_unique<Rounds>(texts, way.length, way.shares));
  const std::size_t turns = runs.size() * static_cast<std::size_t>(std::max(1, 8 / texts));
  std::size_t first = 0;  // all ways in turn, each time from another one on
  for (auto _ : state) {
    for (std::size_t i = 0; i < turns; ++i) {
      const std::size_t way = (first + i) % runs.size();
      Rounds& run = *runs[way];
      Sum& sum = sums[way];
      run.fill();
      const std::int64_t tokens = run.tokens;
      const double inside = run.pass_seconds(), all = detail::monotonic_seconds();
      const std::clock_t cpu = std::clock();
      benchmark::DoNotOptimize(run.batch->step().data());
      sum.cpu += static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
      sum.inside += run.pass_seconds() - inside, sum.all += detail::monotonic_seconds() - all;
      sum.tokens += run.tokens - tokens, ++sum.rounds;
    }
    ++first;
  }
  for (std::size_t way = 0; way < runs.size(); ++way) {
    const std::string name = kWays[way].name;
    state.counters[name + "_tokens"] = static_cast<double>(sums[way].tokens);
    state.counters[name + "_rounds"] = static_cast<double>(sums[way].rounds);
    state.counters[name + "_seconds"] = sums[way].cpu;
    state.counters[name + "_library_share"] = 1 - sums[way].inside / sums[way].all;
  }
}
BENCHMARK(rounds)->ArgName("texts")->RangeMultiplier(2)->Range(1, 32)->Iterations(6);

void rows(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t n : {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256}) bench->Args({1, n, 128});
  for (const std::int64_t context : {128, 2000})
    for (const std::int64_t n : {2, 8, 32}) bench->Args({n, 1, context}), bench->Args({1, n, context});
  bench->ArgNames({"texts", "each", "context"})->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(pass, target, false)->Apply(rows);
BENCHMARK_CAPTURE(pass, draft, true)->Apply(rows);

}  // namespace
