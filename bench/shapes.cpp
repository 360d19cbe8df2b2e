// What a shape itself costs: a round of proposing over rows that are there already, so that nothing but the
// shape's own work is timed. Counters: rows that it was given, nodes that it proposed.
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
  explicit ReadyRows(std::int32_t vocab) : vocab_(vocab) {
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
  RowsView extend(Tokens tokens, Nodes) {
    at_ = (at_ + 1) % kRows;
    rows += static_cast<std::int64_t>(tokens.size());
    return {pool_.data() + at_ * static_cast<std::size_t>(vocab_), static_cast<std::int32_t>(tokens.size()),
            vocab_, vocab_};
  }
  std::int64_t rows = 0;

 private:
  static constexpr std::size_t kRows = 32;
  std::int32_t vocab_;
  std::size_t at_ = 0;
  std::vector<float> pool_;
};

template <class S>
void propose(benchmark::State& state, S shape) {
  const auto vocab = static_cast<std::int32_t>(state.range(0));
  ReadyRows drafter(vocab);
  TokenTree tree(vocab, shape.max_nodes(), S::law == DraftLaw::deterministic ? 0 : shape.max_nodes());
  if constexpr (requires { shape.reserve(); }) shape.reserve();
  PhiloxChance chance(1);
  const std::vector<Token> context{1, 2, 3};
  std::int32_t position = 3;
  std::int64_t nodes = 0;
  for (auto _ : state) {
    tree.reset(1, ++position);
    shape.propose(drafter, Round{context, {}, shape.max_nodes()}, tree, chance);
    nodes += tree.size() - 1;
    benchmark::DoNotOptimize(tree.tokens().data());
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["rows"] = static_cast<double>(drafter.rows) / rounds;
  state.counters["nodes"] = static_cast<double>(nodes) / rounds;
}

void vocabularies(benchmark::internal::Benchmark* b) {
  b->ArgName("vocab")->Arg(2048)->Arg(32000)->Arg(128256)->Unit(benchmark::kMicrosecond);
}

using Distinct = SampledTree<DraftLaw::sampled_distinct>;

BENCHMARK_CAPTURE(propose, chain_4, Chain<>{.length = 4})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, sampled_chain_4, Chain<Draw::sampled>{.length = 4})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, shared_chain_4, Chain<Draw::shared>{.length = 4})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, cape_4, Cape{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, beam_4_4, Beam{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, dynamic_tree_10_5_59, DynamicTree{})->Apply(vocabularies);
BENCHMARK_CAPTURE(propose, sampled_tree_4_2_1, Distinct{})->Apply(vocabularies);

}  // namespace
