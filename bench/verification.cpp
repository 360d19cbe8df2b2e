// SPDX-License-Identifier: MIT
// Verification of a chain from cold rows of logits, against a streaming read of the rows that it needs, and
// against the direct implementation (softmax both rows, then loop); and of chains and trees by every rule.
//
// Each iteration times the three on different cold rows, in turn, so that drift of the machine affects all
// alike. Counters: `rows` that a verification needs (target rows on the path, and the draft's row after a
// rejection), the medians of the time for each such row, and their ratios `over_stream` and
// `naive_over_this`. With SPECULA_BENCH_QUICK in the environment rows may be in a cache: this only checks
// that it runs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include <specula/specula.hpp>

namespace {

using namespace specula;
using Clock = std::chrono::steady_clock;

const SamplingParams kPlain{};

/// Reads rows as fast as the machine can: eight independent sums of 64-bit words, which compilers vectorise.
std::uint64_t stream(const float* data, std::size_t floats) {
  struct Word {
    std::uint64_t bits __attribute__((may_alias));
  };
  const auto* words = reinterpret_cast<const Word*>(data);
  std::uint64_t sums[32] = {};
  const std::size_t n = floats / 2;
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (std::size_t j = 0; j < 32; ++j) sums[j] ^= words[i + j].bits;
  for (; i < n; ++i) sums[0] ^= words[i].bits;
  std::uint64_t out = 0;
  for (const std::uint64_t s : sums) out ^= s;
  return out;
}

/// One proposal with its target rows: V floats per row, cold unless used recently.
struct Case {
  std::vector<float> target;  // (nodes, V)
  std::vector<float> draft;   // (nodes - 1, V), as the naive implementation takes them
  std::unique_ptr<ProposalBuilder> tree;
  std::int32_t target_rows = 0, draft_rows = 0, needed = 0;  // that verification must read
};

void fill_rows(std::vector<float>& rows, std::int32_t vocab, std::int32_t nodes, std::uint64_t seed) {
  const auto v = static_cast<std::size_t>(vocab);
  rows.resize(v * static_cast<std::size_t>(nodes));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> pool(
      4 * v);  // rows are windows of a pool with a few tokens lifted: drawing 300 MB of normals takes minutes
  for (float& l : pool) l = normal(random);
  for (std::int32_t r = 0; r < nodes; ++r) {
    float* row = rows.data() + static_cast<std::size_t>(r) * v;
    const std::size_t shift = random() % (3 * v);
    std::copy_n(pool.data() + shift, v, row);
    for (int k = 0; k < 8; ++k) row[random() % v] += 8.0f;
  }
}

/// The number of cases of a given size that exceeds any cache by far.
std::size_t case_count(std::size_t bytes) {
  static const bool quick = std::getenv("SPECULA_BENCH_QUICK") != nullptr;
  if (quick) return 1;
  return std::clamp<std::size_t>((std::size_t{320} << 20) / bytes, 6, 4096);
}

Case make_case(std::int32_t vocab, std::int32_t nodes, bool all_accepted, std::uint64_t seed,
               const SamplingParams& params, PhiloxRandom& rng) {
  const auto v = static_cast<std::size_t>(vocab);
  Case c;
  fill_rows(c.target, vocab, nodes, seed);
  c.draft.assign(c.target.begin(), c.target.end() - static_cast<std::ptrdiff_t>(v));
  if (!all_accepted)
    for (float& l : c.draft) l *= 0.9f;
  c.tree = std::make_unique<ProposalBuilder>(vocab, nodes, nodes);
  c.tree->reset(0, 100);
  for (NodeId n = 0; n + 1 < nodes; ++n)
    c.tree->draw(n, c.tree->store(n, {c.draft.data() + static_cast<std::size_t>(n) * v, v}, params), rng);
  return c;
}

/// Softmax both rows of every node, then the loop of the paper.
VerifyResult naive(const Case& c, std::int32_t vocab, const SamplingParams& params, std::mt19937_64& random) {
  const auto v = static_cast<std::size_t>(vocab);
  const std::size_t nodes = c.target.size() / v;
  const auto softmax = [&](const float* row) {
    std::vector<float> p(v);
    float top = row[0], sum = 0;
    for (std::size_t x = 0; x < v; ++x) top = std::max(top, row[x]);
    for (std::size_t x = 0; x < v; ++x) sum += p[x] = std::exp((row[x] - top) / params.temperature);
    for (float& x : p) x /= sum;
    return p;
  };
  std::vector<std::vector<float>> p, q;
  for (std::size_t n = 0; n < nodes; ++n) p.push_back(softmax(c.target.data() + n * v));
  for (std::size_t n = 0; n + 1 < nodes; ++n) q.push_back(softmax(c.draft.data() + n * v));
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  VerifyResult out;
  out.clear();
  const auto draw = [&](const std::vector<float>& w) {
    float sum = 0;
    for (const float x : w) sum += x;
    float left = uniform(random) * sum;
    for (std::size_t x = 0; x < v; ++x)
      if ((left -= w[x]) < 0) return static_cast<Token>(x);
    return static_cast<Token>(v - 1);
  };
  for (std::size_t n = 0;; ++n) {
    if (n + 1 == nodes) return out.next_token = draw(p[n]), out;
    const auto x = static_cast<std::size_t>(c.tree->token(static_cast<NodeId>(n) + 1));
    if (uniform(random) * q[n][x] < p[n][x]) {
      out.accepted.push_back(static_cast<NodeId>(n) + 1);
      continue;
    }
    for (std::size_t y = 0; y < v; ++y) p[n][y] = std::max(0.0f, p[n][y] - q[n][y]);
    return out.next_token = draw(p[n]), out;
  }
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// Counts repeated requests of a uniform draw: block verification makes one after it has read two rows for
/// it.
struct Repeats {
  PhiloxRandom& uniforms;
  std::int32_t count = 0;
  RandomKey last{};
  bool accept(double probability, const RandomKey& key) {
    count += key == last;
    last = key;
    return uniforms.accept(probability, key);
  }
  template <class Weights>
  Token draw(const Weights& weights, const RandomKey& key) {
    return uniforms.draw(weights, key);
  }
};

template <class Rule>
void verification(benchmark::State& state, Rule rule, const SamplingParams& params, bool all_accepted,
                  bool with_naive) {
  const auto vocab = static_cast<std::int32_t>(state.range(0)),
             nodes = static_cast<std::int32_t>(state.range(1));
  const auto v = static_cast<std::size_t>(vocab);
  const std::size_t bytes = 2 * v * static_cast<std::size_t>(nodes) * sizeof(float);
  const std::size_t count = case_count(bytes);
  PhiloxRandom rng{7};
  std::vector<Case> cases;
  for (std::size_t i = 0; i < count; ++i)
    cases.push_back(make_case(vocab, nodes, all_accepted, i, params, rng));
  VerifyWorkspace workspace(vocab, nodes);
  VerifyResult result;
  result.accepted.reserve(static_cast<std::size_t>(nodes) + 1);
  std::mt19937_64 random(3);
  const auto seconds = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  const auto verify = [&](const Case& c) {
    decide_checked(rule, *c.tree,
                   TargetDistributions({c.target.data(), nodes, vocab, vocab}, params, workspace), rng,
                   result);
  };
  for (Case& c : cases) {
    Repeats counting{rng};
    decide_checked(rule, *c.tree,
                   TargetDistributions({c.target.data(), nodes, vocab, vocab}, params, workspace), counting,
                   result);
    const std::int32_t accepted = result.accepted_count(), draft_tokens = nodes - 1;
    c.target_rows = accepted + 1;
    c.draft_rows = 0;
    if constexpr (std::is_same_v<Rule, Rejection>) {
      c.draft_rows = accepted < draft_tokens ? 1 : 0;
    } else if constexpr (std::is_same_v<Rule,
                                        Block>) {  // every ratio first, then back over what was rejected
      c.target_rows = std::max(draft_tokens, accepted + 1);
      c.draft_rows = counting.count + (accepted == 0 && draft_tokens > 0 ? 1 : 0);
    }
    c.needed = c.target_rows + c.draft_rows;
  }
  std::vector<double> ours, streamed, obvious;  // seconds per row needed, of each iteration
  double rows = 0;
  for (std::vector<double>* times : {&ours, &streamed, &obvious}) times->reserve(1 << 20);
  std::size_t at = 0;
  for (auto _ : state) {
    const Case& a = cases[at % count];
    const Case& b = cases[(at + count / 3) % count];
    const Case& c = cases[(at + 2 * count / 3) % count];
    ++at;
    auto begin = Clock::now();
    verify(a);
    const double this_time = seconds(begin);
    benchmark::DoNotOptimize(result.next_token);
    begin = Clock::now();
    std::uint64_t sink = stream(b.target.data(), static_cast<std::size_t>(b.target_rows) * v);
    sink ^= stream(b.draft.data(), static_cast<std::size_t>(b.draft_rows) * v);
    benchmark::DoNotOptimize(sink);
    streamed.push_back(seconds(begin) / b.needed);
    if (with_naive) {
      begin = Clock::now();
      benchmark::DoNotOptimize(naive(c, vocab, params, random).next_token);
      obvious.push_back(seconds(begin) / c.needed);
    }
    ours.push_back(this_time / a.needed);
    rows += a.needed;
    state.SetIterationTime(this_time);
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["rows"] = rows / n;
  state.counters["row_us"] = 1e6 * median(ours);
  state.counters["stream_row_us"] = 1e6 * median(streamed);
  state.counters["over_stream"] = median(ours) / median(streamed);
  if (with_naive) state.counters["naive_over_this"] = median(obvious) / median(ours);
}

/// A draft whose row after node n is the target's after n, flattened: most of its draft tokens are accepted.
class NearDraft {
 public:
  NearDraft(const std::vector<float>& target, std::int32_t vocab) : draft_(target), vocab_(vocab) {
    for (float& l : draft_) l *= 0.9f;
  }
  std::int32_t vocab_size() const { return vocab_; }
  std::int32_t capacity() const { return 1 << 20; }
  void truncate(std::int32_t) {}
  void sync(Tokens, Tokens) { nodes_ = 0; }
  LogitsView extend(Tokens tokens, Nodes) {
    const std::size_t from = nodes_ * static_cast<std::size_t>(vocab_);
    nodes_ += tokens.size();
    return {draft_.data() + from, static_cast<std::int32_t>(tokens.size()), vocab_, vocab_};
  }

 private:
  std::vector<float> draft_;  // (nodes, V)
  std::int32_t vocab_;
  std::size_t nodes_ = 0;
};

/// Makes one child of most nodes the target's likeliest token, so that chosen draft tokens, too, are
/// sometimes accepted.
void favour_draft_tokens(Case& c, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto v = static_cast<std::size_t>(c.tree->vocab());
  for (NodeId n = 0; n < c.tree->size(); ++n) {
    if (random() % 4 == 0) continue;
    float* row = c.target.data() + static_cast<std::size_t>(n) * v;
    c.tree->children(n, [&](NodeId child) {
      row[c.tree->token(child)] = *std::max_element(row, row + v) + 3.0f;
      return random() % 2 == 0;
    });
  }
}

/// Any rule on proposals of any shape. Counters: `rows` are the target's on the accepted path, which every
/// rule reads, and `draft_tokens` those of the proposal.
template <class Rule, class Shape>
void rule(benchmark::State& state, Rule by, Shape shape) {
  const auto vocab = static_cast<std::int32_t>(state.range(0)), nodes = shape.nodes().most;
  const auto v = static_cast<std::size_t>(vocab);
  const std::size_t count = case_count(2 * v * static_cast<std::size_t>(nodes) * sizeof(float));
  PhiloxRandom rng{7};
  const std::vector<Token> context{1, 2, 3};
  if constexpr (Reserves<std::remove_cvref_t<decltype(shape)>>) shape.reserve({});
  std::vector<Case> cases(count);
  for (std::size_t i = 0; i < count; ++i) {
    Case& c = cases[i];
    fill_rows(c.target, vocab, nodes, i);
    NearDraft draft(c.target, vocab);
    c.tree = std::make_unique<ProposalBuilder>(vocab, nodes, nodes);
    c.tree->reset(0, static_cast<std::int32_t>(100 + i));
    shape.propose(draft, ProposeContext{context, kPlain, nodes}, *c.tree, rng).run();
    if (Shape::kind == ProposalKind::deterministic) favour_draft_tokens(c, i);
  }
  VerifyWorkspace workspace(vocab, nodes);
  VerifyResult result;
  result.accepted.reserve(static_cast<std::size_t>(nodes) + 1);
  std::vector<double> row_seconds;  // per row on the path, of each iteration
  double rows = 0, draft_tokens = 0;
  std::size_t at = 0;
  for (auto _ : state) {
    const Case& c = cases[at++ % count];
    const auto begin = Clock::now();
    decide_checked(by, *c.tree,
                   TargetDistributions({c.target.data(), c.tree->size(), vocab, vocab}, kPlain, workspace),
                   rng, result);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    benchmark::DoNotOptimize(result.next_token);
    row_seconds.push_back(seconds / static_cast<double>(result.accepted.size()));
    rows += static_cast<double>(result.accepted.size());
    draft_tokens += c.tree->size() - 1;
    state.SetIterationTime(seconds);
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["rows"] = rows / n;
  state.counters["draft_tokens"] = draft_tokens / n;
  state.counters["row_us"] = 1e6 * median(row_seconds);
}

/// verification() on another instruction set than this processor's widest.
void on_avx2(benchmark::State& state, const SamplingParams& params, bool all_accepted) {
  if (!supported(Isa::avx2)) return state.SkipWithError("this processor has no AVX2");
  const Isa before = detail::isa();
  detail::use_isa(Isa::avx2);
  verification(state, Rejection{}, params, all_accepted, false);
  detail::use_isa(before);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (const std::int64_t vocab : {2048, 32000, 128256})
    for (const std::int64_t nodes : {1, 5, 9, 64}) b->Args({vocab, nodes});
}
void wide(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Unit(benchmark::kMicrosecond)->Args({128256, 9});
}

const SamplingParams kTruncated{.temperature = 0.8f, .top_k = 50, .top_p = 0.95f};
const SamplingParams kNucleus{.temperature = 0.8f, .top_p = 0.95f};

BENCHMARK_CAPTURE(verification, rejection_accepted, Rejection{}, kPlain, true, true)->Apply(shapes);
BENCHMARK_CAPTURE(verification, rejection_mixed, Rejection{}, kPlain, false, true)->Apply(shapes);
BENCHMARK_CAPTURE(verification, block_accepted, Block{}, kPlain, true, false)->Apply(shapes);
BENCHMARK_CAPTURE(verification, block_mixed, Block{}, kPlain, false, false)->Apply(shapes);
BENCHMARK_CAPTURE(verification, sample_and_match, SampleAndMatch{}, kPlain, false, false)->Apply(shapes);
BENCHMARK_CAPTURE(verification, greedy, Greedy{}, kPlain, false, false)->Apply(shapes);
BENCHMARK_CAPTURE(on_avx2, rejection_accepted, kPlain, true)->Apply(wide);
BENCHMARK_CAPTURE(on_avx2, rejection_mixed, kPlain, false)->Apply(wide);
BENCHMARK_CAPTURE(verification, rejection_top_k_top_p, Rejection{}, kTruncated, true, false)->Apply(wide);
BENCHMARK_CAPTURE(verification, rejection_top_p, Rejection{}, kNucleus, true, false)->Apply(wide);

void vocabularies(benchmark::internal::Benchmark* b) {
  b->ArgName("vocab")->UseManualTime()->Unit(benchmark::kMicrosecond)->Arg(32000)->Arg(128256);
}

const Chain<Draw::sampled> kChain{.length = 8};
const Chain<> kGreedyChain{.length = 8};
const Chain<Draw::shared> kSharedChain{.length = 8};
const SampledTree<ProposalKind::sampled_distinct> kTree{};  // widths 4-2-1
const SampledTree<ProposalKind::sampled_iid> kIidTree{};
const DynamicTree kChosenTree{.top_k = 4, .expansions = 3, .total = 20};

BENCHMARK_CAPTURE(rule, chain_rejection, Rejection{}, kChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, chain_block, Block{}, kChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, chain_traversal, Traversal{}, kChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, chain_typical, Typical{}, kChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, chain_lenient, Lenient(2), kChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, shared_chain_gumbel_coupling, GumbelCoupling{}, kSharedChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, greedy_chain_greedy, Greedy{}, kGreedyChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, greedy_chain_sample_and_match, SampleAndMatch{}, kGreedyChain)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, tree_rejection, Rejection{}, kTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, tree_traversal, Traversal{}, kTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, tree_typical, Typical{}, kTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, tree_lenient, Lenient(2), kTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, iid_tree_k_seq, KSeq{}, kIidTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, iid_tree_rejection, Rejection{}, kIidTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, iid_tree_traversal, Traversal{}, kIidTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, chosen_tree_greedy, Greedy{}, kChosenTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, chosen_tree_sample_and_match, SampleAndMatch{}, kChosenTree)->Apply(vocabularies);
BENCHMARK_CAPTURE(rule, chosen_tree_gumbel_coupling, GumbelCoupling{}, kChosenTree)->Apply(vocabularies);

}  // namespace
