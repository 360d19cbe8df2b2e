// SPDX-License-Identifier: MIT
// Time of one pass of a Llama decoder over n nodes after a context: T(n) / T(1) is the cost of draft tokens.
// Random weights in bfloat16. Arguments: hidden size, nodes, context, threads, whether inputs are rounded to
// bfloat16, too. And of a step of a head by the size of its draft vocabulary.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <specula/cpu/decoder.hpp>

namespace {

using specula::best_isa;
using specula::Isa;
using specula::NodeId;
using specula::Token;
using namespace specula::cpu;

/// Vocabulary 2048. At hidden size 384 the embedded target's shape, 26M parameters: 16 layers, 6 heads of 64
/// over 2 KV heads. At others 8 layers, 8 heads over 4 KV heads; at 256 that is 6.3M.
std::shared_ptr<const DecoderWeights<float>> weights(std::int32_t hidden) {
  static std::map<std::int32_t, std::shared_ptr<const DecoderWeights<float>>> made;
  auto& entry = made[hidden];
  if (!entry) {
    DecoderConfig config;
    config.vocab_size = 2048;
    config.hidden_size = hidden;
    config.intermediate_size = hidden * 43 / 16;
    config.layers = 8;
    config.heads = 8;
    config.kv_heads = 4;
    config.head_dim = hidden / 8;
    if (hidden == 384) {
      config.intermediate_size = 1024;
      config.layers = 16;
      config.heads = 6;
      config.kv_heads = 2;
      config.head_dim = 64;
    }
    entry = std::make_shared<const DecoderWeights<float>>(random_decoder_weights<float>(config, 1));
  }
  return entry;
}

std::vector<Token> some_tokens(std::int64_t count) {
  std::vector<Token> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(i * 977 % 2048));
  return tokens;
}

void extend(benchmark::State& state) {
  const auto nodes = static_cast<std::int32_t>(state.range(1)),
             context = static_cast<std::int32_t>(state.range(2));
  const bool bf16 = state.range(4) != 0;
  if (bf16 && !has_bf16_products()) return state.SkipWithError("this machine does not have these products");
  Decoder<float> model(weights(static_cast<std::int32_t>(state.range(0))),
                       {.capacity = context + 64,
                        .max_nodes = 64,
                        .threads = static_cast<std::int32_t>(state.range(3)),
                        .inputs = bf16 ? Inputs::bf16 : Inputs::full});
  if (context > 0) model.append(some_tokens(context));
  const auto tokens = some_tokens(nodes);
  std::vector<NodeId> parents;
  for (NodeId i = 0; i < nodes; ++i) parents.push_back((i + 1) / 2 - 1);  // a binary tree
  for (auto _ : state) {
    model.truncate(context);
    benchmark::DoNotOptimize(model.extend(tokens, parents).data);
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(nodes), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(extend)
    ->ArgNames({"hidden", "nodes", "context", "threads", "bf16"})
    ->ArgsProduct({{256, 384, 512}, {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}, {256}, {1, 2}, {0, 1}})
    ->ArgsProduct({{256}, {1, 5}, {0, 1024}, {1}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// Prefill: tokens per second, by the machine's kernels or the portable ones; and the cost of measuring the
/// similarity of attention blocks.
void append(benchmark::State& state) {
  Decoder<float> model(weights(static_cast<std::int32_t>(state.range(0))),
                       {.capacity = 512,
                        .max_nodes = 1,
                        .isa = state.range(1) != 0 ? Isa::portable : best_isa(),
                        .measure_similarity = state.range(2) != 0});
  const auto tokens = some_tokens(512);
  for (auto _ : state) {
    model.truncate(0);
    model.append(tokens);
  }
  state.counters["tokens/s"] = benchmark::Counter(512, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(append)
    ->ArgNames({"hidden", "portable", "similarity"})
    ->ArgsProduct({{256, 512}, {0, 1}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// A step of a feature head on a target of SmolLM2-135M's width: 49,152 tokens at hidden size 576, by the
/// size of its draft vocabulary. The LM head is most of it.
void draft_step(benchmark::State& state) {
  DecoderConfig config;
  config.vocab_size = 49152, config.hidden_size = 576, config.intermediate_size = 1536, config.layers = 1;
  config.heads = 9, config.kv_heads = 3, config.head_dim = 64, config.tied_head = true;
  static const auto lender =
      std::make_shared<const DecoderWeights<float>>(random_decoder_weights<float>(config, 1));
  config.conditioned_on = specula::Conditioning::features;
  config.draft_vocab_size = static_cast<std::int32_t>(state.range(0));
  const auto weights = std::make_shared<const DecoderWeights<float>>(
      random_decoder_weights<float>(config, 2, WeightType::bf16, lender));
  Decoder<float> target(lender, {.capacity = 300, .max_nodes = 1}),
      head(weights, {.capacity = 300, .max_nodes = 8});
  const auto context = some_tokens(256), token = some_tokens(1);
  const std::vector<NodeId> root{specula::kNoParent};
  target.append(context);
  head.set_target_state(target.features());
  head.append(context);
  for (auto _ : state) {
    head.truncate(256);
    benchmark::DoNotOptimize(head.extend(token, root).data);
  }
}
BENCHMARK(draft_step)
    ->ArgName("draft_tokens")
    ->Arg(49152)
    ->Arg(16384)
    ->Arg(8192)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
