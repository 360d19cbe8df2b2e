// SPDX-License-Identifier: MIT
// Cost of the adapter and of verification inside llama.cpp.
// `verification`: verification of a chain from the target's rows, against llama.cpp's on the same rows: for
// each position an array of candidates and the default sampler chain, while the sampled token is the draft
// token. Each iteration times both in turn. Counters, medians per position: `this_us`, `chain_us`,
// `chain_over_this`. `bookkeeping`: rounds of a tree after a long context, on the pack's target; the share of
// copies and removals of sequences. Counters: `share`, `round_us`, `bookkeeping_us`.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <specula/llama_cpp/model.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <specula/specula.hpp>

#include "gguf_writer.hpp"

namespace {

using namespace specula;
using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

double in_sequences = 0;  // seconds, of the two functions below

}  // namespace

// The program's own definitions come before the library's, which they call.
extern "C" void llama_memory_seq_cp(llama_memory_t memory, llama_seq_id from, llama_seq_id to, llama_pos p0,
                                    llama_pos p1) {
  static const auto real =
      reinterpret_cast<decltype(&llama_memory_seq_cp)>(dlsym(RTLD_NEXT, "llama_memory_seq_cp"));
  const auto begin = Clock::now();
  real(memory, from, to, p0, p1);
  in_sequences += seconds(begin);
}
extern "C" bool llama_memory_seq_rm(llama_memory_t memory, llama_seq_id sequence, llama_pos p0,
                                    llama_pos p1) {
  static const auto real =
      reinterpret_cast<decltype(&llama_memory_seq_rm)>(dlsym(RTLD_NEXT, "llama_memory_seq_rm"));
  const auto begin = Clock::now();
  const bool removed = real(memory, sequence, p0, p1);
  in_sequences += seconds(begin);
  return removed;
}

namespace {

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// llama.cpp's default sampling parameters.
const SamplingParams kDefault{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f};
const SamplingParams kGreedy{.temperature = 0};

/// llama.cpp's chain with these parameters, one position at a time, as its common/sampling.cpp drives it.
class SamplerChain {
 public:
  SamplerChain(std::int32_t vocab, const SamplingParams& params)
      : chain_(llama_sampler_chain_init({.no_perf = true})), candidates_(static_cast<std::size_t>(vocab)) {
    const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain_, sampler); };
    if (params.top_k > 0) add(llama_sampler_init_top_k(params.top_k));
    if (params.top_p < 1) add(llama_sampler_init_top_p(params.top_p, 0));
    if (params.min_p > 0) add(llama_sampler_init_min_p(params.min_p, 0));
    if (params.temperature > 0) {
      add(llama_sampler_init_temp_ext(params.temperature, 0, 1));
      add(llama_sampler_init_dist(1));
    } else {
      add(llama_sampler_init_greedy());
    }
  }
  SamplerChain(const SamplerChain&) = delete;
  SamplerChain& operator=(const SamplerChain&) = delete;
  ~SamplerChain() { llama_sampler_free(chain_); }

  Token sample(const float* row) {
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      candidates_[i] = {static_cast<llama_token>(i), row[i], 0.0f};
    llama_token_data_array all{candidates_.data(), candidates_.size(), -1, false};
    llama_sampler_apply(chain_, &all);
    const Token token = all.data[all.selected].id;
    llama_sampler_accept(chain_, token);
    return token;
  }

 private:
  llama_sampler* chain_;
  std::vector<llama_token_data> candidates_;
};

void verification(benchmark::State& state, const SamplingParams& params) {
  constexpr std::int32_t kVocab = 151936, kNodes = 5;
  constexpr std::size_t kCases = 8;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  struct Case {
    std::vector<float> rows;
    std::unique_ptr<ProposalBuilder> tree;
  };
  std::vector<Case> cases(kCases);
  for (Case& c : cases) {
    c.rows.resize(std::size_t{kVocab} * kNodes);
    for (float& l : c.rows) l = normal(random);
    c.tree = std::make_unique<ProposalBuilder>(kVocab, kNodes, 0);
    c.tree->reset(0, 100);
    for (NodeId n = 0; n < kNodes; ++n) {  // the draft token is mostly the target's likeliest one
      const auto token = static_cast<Token>(random() % kVocab);
      c.rows[static_cast<std::size_t>(n) * kVocab + static_cast<std::size_t>(token)] = 16.0f;
      if (n + 1 < kNodes) c.tree->choose(n, random() % 5 ? token : token / 2, 0.8f);
    }
  }
  VerifyWorkspace workspace(kVocab, kNodes);
  SamplerChain chain(kVocab, params);
  PhiloxRandom rng(3);
  VerifyResult result;
  std::vector<double> ours, theirs;
  std::size_t at = 0;
  std::int64_t positions = 0, their_positions = 0;
  for (auto _ : state) {
    const Case& c = cases[at++ % kCases];
    auto begin = Clock::now();
    decide_checked(Sampling{}, *c.tree,
                   TargetDistributions({c.rows.data(), kNodes, kVocab, kVocab}, params, workspace), rng,
                   result);
    double spent = seconds(begin);
    positions += result.accepted_count() + 1;
    ours.push_back(spent / (result.accepted_count() + 1));

    begin = Clock::now();
    std::int32_t accepted = 0;
    while (chain.sample(c.rows.data() + static_cast<std::size_t>(accepted) * kVocab) ==
           (accepted + 1 < kNodes ? c.tree->token(accepted + 1) : kNoToken))
      ++accepted;
    spent = seconds(begin);
    their_positions += accepted + 1;
    theirs.push_back(spent / (accepted + 1));
    state.SetIterationTime(spent);
  }
  state.counters["positions"] = static_cast<double>(positions) / static_cast<double>(ours.size());
  state.counters["chain_positions"] = static_cast<double>(their_positions) / static_cast<double>(ours.size());
  state.counters["this_us"] = 1e6 * median(ours);
  state.counters["chain_us"] = 1e6 * median(theirs);
  state.counters["chain_over_this"] = median(theirs) / median(ours);
}

/// Eight branches of two nodes, or with one leaf a chain as long.
void bookkeeping(benchmark::State& state) {
  const auto prefix = static_cast<std::int32_t>(state.range(0)),
             leaves = static_cast<std::int32_t>(state.range(1));
  static const auto file = std::filesystem::temp_directory_path() / "specula_bench_target.gguf";
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  specula_tools::write_gguf(std::filesystem::path(SPECULA_MODELS_DIR) / "target", file,
                            specula_tools::GgufType::bf16);
  const auto weights = llama_cpp::load(file);
  std::filesystem::remove(file);  // keeps its pages
  llama_cpp::Model model(weights, {.capacity = prefix + 512, .max_nodes = 32, .threads = 2});
  std::mt19937_64 random(2);
  const auto tokens_of = [&](std::int32_t count) {
    std::vector<Token> tokens;
    for (std::int32_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<Token>(3 + random() % static_cast<std::uint64_t>(model.vocab_size() - 3)));
    return tokens;
  };
  std::vector<NodeId> parents{kNoParent};
  const std::int32_t depth = leaves == 1 ? 16 : 2;
  for (std::int32_t leaf = 0; leaf < leaves; ++leaf)
    for (std::int32_t d = 0; d < depth; ++d)
      parents.push_back(d == 0 ? 0 : static_cast<NodeId>(parents.size()) - 1);
  const auto tokens = tokens_of(static_cast<std::int32_t>(parents.size()));
  model.append(tokens_of(prefix));
  std::vector<double> rounds, sequences;
  for (auto _ : state) {
    if (model.size() > prefix + 400) model.truncate(prefix);
    in_sequences = 0;
    const auto begin = Clock::now();
    model.extend(tokens, parents);
    const std::int32_t last =
        1 + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(leaves)) * depth;
    const NodeId path[] = {0, last, last + 1};
    model.commit(path);
    const double spent = seconds(begin);
    rounds.push_back(spent);
    sequences.push_back(in_sequences);
    state.SetIterationTime(spent);
  }
  state.counters["round_us"] = 1e6 * median(rounds);
  state.counters["bookkeeping_us"] = 1e6 * median(sequences);
  state.counters["share"] = median(sequences) / median(rounds);
}

BENCHMARK_CAPTURE(verification, default_chain, kDefault)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(verification, greedy, kGreedy)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(bookkeeping)
    ->Args({4096, 8})
    ->Args({4096, 1})
    ->Args({512, 8})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
