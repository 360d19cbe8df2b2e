// SPDX-License-Identifier: MIT
// A round of Max-Gram (three new tokens, a chain of ten draft tokens) after contexts of several lengths,
// against the direct implementation: for each draft token, compare the end of the text with every position of
// the context. Texts: `text` has Zipf-distributed words and repeated pieces; `loop` repeats 40 tokens, except
// for one in 100. Counters: draft tokens per round.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <specula/specula.hpp>

namespace {

using namespace specula;
using Clock = std::chrono::steady_clock;

constexpr std::int32_t kVocab = 32000;
constexpr std::size_t kNew = 3;
constexpr int kDraftTokens = 10;

enum Kind : std::int64_t { kText, kLoop };

std::vector<Token> make_text(std::int64_t kind, std::size_t size) {
  std::mt19937_64 random(5);
  std::vector<Token> text;
  while (text.size() < size) {
    if (kind == kLoop) {
      text.push_back(static_cast<Token>(random() % 100 == 0 ? random() % kVocab : text.size() % 40));
    } else if (text.size() > 50 && random() % 20 == 0) {
      const std::size_t from = random() % (text.size() - 40);
      for (std::size_t i = from; i < from + 30; ++i) text.push_back(text[i]);
    } else {  // Zipf's law: log-uniform ranks
      const double u = static_cast<double>(random() >> 11) * 0x1p-53;
      text.push_back(static_cast<Token>(std::pow(static_cast<double>(kVocab), u)) - 1);
    }
  }
  text.resize(size);
  return text;
}

/// The longest suffix of `text` that ends before a place of its first `corpus` tokens, and the token at the
/// earliest.
Token scan(const std::vector<Token>& text, std::size_t corpus) {
  std::size_t longest = 0, place = corpus;
  for (std::size_t end = 1; end <= corpus; ++end) {
    std::size_t length = 0;
    while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
    if (length > longest) longest = length, place = end;
  }
  return place < corpus ? text[place] : kNoToken;
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"context", "loop"})->Unit(benchmark::kMicrosecond)->UseManualTime();
  for (const std::int64_t kind : {kText, kLoop})
    for (const std::int64_t context : {1000, 10000, 100000}) b->Args({context, kind});
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void round(benchmark::State& state, MaxGram drafter) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::vector<Token> text = make_text(state.range(1), size + size / 10 + kNew + 1);
  drafter.reserve({.tokens = static_cast<std::int32_t>(text.size())});
  std::int64_t drafted = 0;
  std::size_t at = text.size();
  for (auto _ : state) {
    if (at + kNew >= text.size()) {  // the context grows by at most a tenth
      drafter.truncate(0);
      drafter.sync(Tokens(text).first(size), {});
      at = size;
    }
    at += kNew;
    const auto begin = Clock::now();
    drafter.sync(Tokens(text).first(at), {});
    Token token = text[at];
    for (NodeId parent = kNoParent; parent + 1 < kDraftTokens; ++parent) {
      const Token draft_token = drafter.extend({&token, 1}, {&parent, 1}).tokens[0];
      drafted += draft_token != kNoToken;
      token = draft_token == kNoToken ? 1 : draft_token;
    }
    state.SetIterationTime(seconds_since(begin));
    benchmark::DoNotOptimize(token);
  }
  state.counters["draft_tokens"] =
      benchmark::Counter(static_cast<double>(drafted), benchmark::Counter::kAvgIterations);
}

void naive_round(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::vector<Token> text = make_text(state.range(1), size + size / 10 + kNew + 1);
  std::vector<Token> now;
  std::int64_t drafted = 0;
  std::size_t at = text.size();
  for (auto _ : state) {
    at = at + kNew >= text.size() ? size + kNew : at + kNew;
    now.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    const auto begin = Clock::now();
    for (int node = 0; node < kDraftTokens; ++node) {
      const Token draft_token = scan(now, at);
      drafted += draft_token != kNoToken;
      now.push_back(draft_token == kNoToken ? 1 : draft_token);
    }
    state.SetIterationTime(seconds_since(begin));
    benchmark::DoNotOptimize(now.data());
  }
  state.counters["draft_tokens"] =
      benchmark::Counter(static_cast<double>(drafted), benchmark::Counter::kAvgIterations);
}

/// A new prompt: the drafter reads all of it.
void build(benchmark::State& state) {
  const std::vector<Token> text = make_text(state.range(1), static_cast<std::size_t>(state.range(0)));
  MaxGram drafter(kVocab);
  drafter.reserve({.tokens = static_cast<std::int32_t>(text.size())});
  for (auto _ : state) {
    const auto begin = Clock::now();
    drafter.truncate(0);
    drafter.sync(text, {});
    state.SetIterationTime(seconds_since(begin));
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(text.size()), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK_CAPTURE(round, max_gram, MaxGram(kVocab))->Apply(shapes);
BENCHMARK_CAPTURE(round, prompt_lookup, MaxGram::prompt_lookup(kVocab))->Apply(shapes);
BENCHMARK(naive_round)->Apply(shapes);
BENCHMARK(build)->Apply(shapes);

}  // namespace
