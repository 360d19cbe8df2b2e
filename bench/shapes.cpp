// SPDX-License-Identifier: MIT
// Cost of a shape itself: a round of propose() (and learn(), if it learns) over existing rows, so that only
// the shape's own work is timed. Counters: rows read, nodes proposed.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <specula/specula.hpp>

namespace {

using namespace specula;

/// Gives windows of a pool of logits, peaked as language models' are, without computing anything.
class ReadyRows {
 public:
  /// Counts in `rows`.
  ReadyRows(std::int32_t vocab, std::int64_t& rows) : vocab_(vocab), rows_(&rows) {
    std::mt19937_64 random(3);
    std::exponential_distribution<float> exponential(0.6f);
    const auto v = static_cast<std::size_t>(vocab);
    pool_.resize(v * (kRows + 64));
    std::vector<float> some(v + 4096);
    for (float& l : some) l = exponential(random);
    for (std::size_t r = 0; r < kRows + 64; ++r)
      std::copy_n(some.begin() + static_cast<std::ptrdiff_t>(random() % 4096), v,
                  pool_.begin() + static_cast<std::ptrdiff_t>(r * v));
  }
  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t capacity() const { return 1 << 20; }
  void truncate(std::int32_t) {}
  void sync(Tokens, Tokens) {}
  LogitsView extend(Tokens tokens, Nodes) {
    at_ = (at_ + 1) % kRows;
    *rows_ += static_cast<std::int64_t>(tokens.size());
    return {pool_.data() + at_ * static_cast<std::size_t>(vocab_), static_cast<std::int32_t>(tokens.size()),
            vocab_, vocab_};
  }

 private:
  static constexpr std::size_t kRows = 32;
  std::int32_t vocab_;
  std::int64_t* rows_;
  std::size_t at_ = 0;
  std::vector<float> pool_;
};

/// Accepts the first half of the first path, so that adaptive shapes have something to learn from.
void accept_half(const TokenTree& tree, VerifyResult& result) {
  result.clear();
  result.next_token = 0;
  for (NodeId n = tree.first_child(0);
       n != kNoParent && 2 * result.accepted_count() < tree.depth(tree.size() - 1); n = tree.first_child(n))
    result.accepted.push_back(n);
}

template <class S, Drafter D>
void run(benchmark::State& state, S& shape, D& drafter, const std::int64_t& rows) {
  ProposalBuilder tree(drafter.vocab_size(), shape.nodes().most,
                       S::kind == ProposalKind::deterministic ? 0 : shape.nodes().most);
  if constexpr (Reserves<S>) shape.reserve({});
  PhiloxRandom rng(1);
  const std::vector<Token> context{1, 2, 3};
  VerifyResult result;
  std::int32_t position = 3;
  std::int64_t nodes = 0;
  for (auto _ : state) {
    tree.reset(1, ++position);
    shape.propose(drafter, ProposeContext{context, {}, shape.nodes().most}, tree, rng).run();
    nodes += tree.size() - 1;
    benchmark::DoNotOptimize(tree.tokens().data());
    if constexpr (LearnsFromRounds<S>) {
      accept_half(tree, result);
      const std::int32_t draft_tokens = tree.size() - 1;
      shape.learn(tree, result,
                  {.target = {.calls = 1, .nodes = draft_tokens + 1},
                   .draft = {.calls = draft_tokens, .nodes = draft_tokens}});
    }
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["rows"] = static_cast<double>(rows) / rounds;
  state.counters["nodes"] = static_cast<double>(nodes) / rounds;
}

template <class S>
void propose(benchmark::State& state, S shape) {
  std::int64_t rows = 0;
  ReadyRows drafter(static_cast<std::int32_t>(state.range(0)), rows);
  run(state, shape, drafter, rows);
}

/// Two drafters, the first of which may review.
template <class S>
void propose_stack(benchmark::State& state, S shape) {
  const auto vocab = static_cast<std::int32_t>(state.range(0));
  std::int64_t rows = 0;
  Stack stack{ReadyRows(vocab, rows), ReadyRows(vocab, rows)};
  run(state, shape, stack, rows);
}

void vocabularies(benchmark::internal::Benchmark* b) {
  b->ArgName("vocab")->Arg(2048)->Arg(32000)->Arg(128256)->Unit(benchmark::kMicrosecond);
}

using Distinct = SampledTree<ProposalKind::sampled_distinct>;

BENCHMARK_CAPTURE(propose, chain_4, Chain<>{.length = 4})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, sampled_chain_4, Chain<Draw::sampled>{.length = 4})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, shared_chain_4, Chain<Draw::shared>{.length = 4})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, cape_4, Cape{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, beam_4_4, Beam{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, dynamic_tree_10_5_59, DynamicTree{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, static_tree_eagle, StaticTree<>{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, drawn_static_tree_eagle, StaticTree<ProposalKind::sampled_distinct>{})
    ->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, sampled_tree_4_2_1, Distinct{})->Apply(vocabularies);

// A node costs the target 2% of a pass, the draft a tenth: given costs, so that every run proposes the same.
template <class S>
CostAware<S> aware(S shape) {
  return CostAware<S>(shape, CostCurve({1, 1.02}), CostCurve({0.1}));
}
BENCHMARK_CAPTURE(propose, cost_aware_chain_8, aware(Chain<>{.length = 8}))->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, cost_aware_cape_8, aware(Cape{.length = 8, .budget = 63}))->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, adaptive_chain_threshold, AdaptiveChain<ThresholdEnd>{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, adaptive_chain_heuristic, AdaptiveChain<HeuristicEnd>{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose_stack, horizontal_2_4, Horizontal<2>{.counts = {2, 4}})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose_stack, vertical_2_4, Vertical<2>{.reviews = 2, .length = 4})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose_stack, sampled_vertical_2_4, Vertical<2, Draw::sampled>{.reviews = 2, .length = 4})
    ->Apply(vocabularies);
BENCHMARK_CAPTURE(propose_stack, cascade_4_2_0_4, Cascade<2>{.limits = {{{4, 2}, {0, 4}}}})
    ->Apply(vocabularies);
BENCHMARK_CAPTURE(propose_stack, cost_aware_cascade_4_2_0_4, aware(Cascade<2>{.limits = {{{4, 2}, {0, 4}}}}))
    ->Apply(vocabularies);

}  // namespace
