// SPDX-License-Identifier: MIT
// verify_batch() by the form of q and the elements of the rows: one text, a chain of four draft tokens, rows
// in the caches as far as they fit. All forms hold the same distributions, so all decide alike.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <specula/accept/verify_batch.hpp>

namespace {

using namespace specula;
using namespace specula::arrays;

constexpr std::int32_t kDrafted = 4;

template <class Element>
std::vector<Element> stored(const std::vector<float>& rows) {
  std::vector<Element> out(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if constexpr (std::is_same_v<Element, Half>)
      out[i].bits = specula::detail::round_to_half(rows[i]);
    else
      out[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rows[i]) >> 16);
  return out;
}

/// Rows of a target and of a draft that resembles it, and draft tokens drawn from the latter.
struct Round {
  std::int32_t vocab;
  std::vector<float> target, draft, probs;
  std::vector<RowStats> stats;
  std::vector<Token> token{0};
  std::int32_t begin[2] = {0, 1 + kDrafted}, position = 0;
  std::uint64_t seed = 0;
  Token out_token[1 + kDrafted];
  NodeId out_accepted[1 + kDrafted];
  std::int32_t out_count = 0;
  Status out_status = Status::ok;
  BatchMemory memory;

  explicit Round(std::int32_t tokens) : vocab(tokens) {
    const auto v = static_cast<std::size_t>(vocab);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal(0, 3), noise(0, 0.5f);
    target.resize(v * (1 + kDrafted)), draft.resize(v * kDrafted), probs.resize(draft.size());
    for (float& l : target) l = normal(random);
    for (std::size_t i = 0; i < draft.size(); ++i) draft[i] = target[i] + noise(random);
    specula::detail::RowScan scan(vocab);
    PhiloxRandom rng(7);
    for (std::int32_t r = 0; r < kDrafted; ++r) {
      const auto at = static_cast<std::size_t>(r) * v;
      const auto weights = scan.weights(std::span<const float>(draft).subspan(at, v), {});
      const Distribution& q = weights.distribution;
      stats.push_back({q.log_z, q.shift, 1, q.min_logit, q.point, Status::ok});
      for (Token x = 0; x < vocab; ++x) probs[at + static_cast<std::size_t>(x)] = static_cast<float>(q(x));
      token.push_back(rng.draw(weights, {r, 0, RandomStream::draft, 0}));
    }
  }

  template <class Rule, class Element, class Draft>
  void run(benchmark::State& state, const Rule& rule, const Element* logits, const Draft& q) {
    for (auto _ : state) {
      ++seed;  // other uniform draws
      verify_batch(rule, {1, 1 + kDrafted, kDrafted, vocab}, {begin, token.data(), nullptr, &position, &seed},
                   TargetRows<Element>{logits, vocab}, q, {out_token, out_accepted, &out_count, &out_status},
                   memory);
      if (out_status != Status::ok) return state.SkipWithError("not verified");
      benchmark::DoNotOptimize(out_token);
    }
  }
};

void chosen(benchmark::State& state) {
  Round round(static_cast<std::int32_t>(state.range(0)));
  round.run(state, SampleAndMatch{}, round.target.data(), ChosenDraft{});
}
void logits(benchmark::State& state) {
  Round round(static_cast<std::int32_t>(state.range(0)));
  round.run(state, Block{}, round.target.data(),
            LogitsDraft<float>{round.draft.data(), round.vocab, nullptr});
}
void logits_with_statistics(benchmark::State& state) {
  Round round(static_cast<std::int32_t>(state.range(0)));
  round.run(state, Block{}, round.target.data(),
            LogitsDraft<float>{round.draft.data(), round.vocab, round.stats.data()});
}
void probabilities(benchmark::State& state) {
  Round round(static_cast<std::int32_t>(state.range(0)));
  round.run(state, Block{}, round.target.data(), ProbsDraft{round.probs.data(), round.vocab});
}
template <class Element>
void logits_of(benchmark::State& state) {
  Round round(static_cast<std::int32_t>(state.range(0)));
  const std::vector<Element> target = stored<Element>(round.target), draft = stored<Element>(round.draft);
  round.run(state, Block{}, target.data(), LogitsDraft<Element>{draft.data(), round.vocab, nullptr});
}

void sizes(benchmark::internal::Benchmark* b) {
  for (const int vocab : {2048, 49152, 128256}) b->Arg(vocab);
  b->Unit(benchmark::kMicrosecond);
}
BENCHMARK(chosen)->Apply(sizes);
BENCHMARK(logits)->Apply(sizes);
BENCHMARK(logits_with_statistics)->Apply(sizes);
BENCHMARK(probabilities)->Apply(sizes);
BENCHMARK(logits_of<BFloat16>)->Apply(sizes)->Name("logits, bfloat16");
BENCHMARK(logits_of<Half>)->Apply(sizes)->Name("logits, half");

}  // namespace
