// SPDX-License-Identifier: MIT
// The top-K distillation loss (HASS) of a row and its gradient, from cold rows of logits, against a streaming
// read of both rows, and against the direct implementation: softmax both rows, then loop. (The loss reads
// both twice, the second time from a cache that holds them, and writes a third.)
//
// Each iteration times the three on different cold rows, in turn, so that drift of the machine affects all
// alike. Counters: the medians of the time for a pair of rows, and their ratios.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <losses/top_k_distillation.hpp>

namespace {

using namespace specula;
using Clock = std::chrono::steady_clock;
using Row = std::span<const float>;

/// Reads a row as fast as the machine can: independent sums of 64-bit words, which compilers vectorise.
std::uint64_t stream(Row row) {
  struct Word {
    std::uint64_t bits __attribute__((may_alias));
  };
  const auto* words = reinterpret_cast<const Word*>(row.data());
  std::uint64_t sums[32] = {}, out = 0;
  for (std::size_t i = 0; i + 32 <= row.size() / 2; i += 32)
    for (std::size_t j = 0; j < 32; ++j) sums[j] ^= words[i + j].bits;
  for (const std::uint64_t s : sums) out ^= s;
  return out;
}

/// Both softmaxes as rows, the likeliest by a partial sort, then the formula.
double obvious(Row target, Row draft, const TopKDistillation& loss, std::span<float> gradient) {
  const auto softmax = [](Row row) {
    std::vector<float> p(row.size());
    const float top = *std::max_element(row.begin(), row.end());
    float sum = 0;
    for (std::size_t x = 0; x < p.size(); ++x) sum += p[x] = std::exp(row[x] - top);
    for (float& w : p) w /= sum;
    return p;
  };
  const std::vector<float> p = softmax(target), q = softmax(draft);
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::partial_sort(order.begin(), order.begin() + loss.k, order.end(),
                    [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  const auto a = static_cast<float>(loss.cross_entropy_weight), w = static_cast<float>(loss.weight);
  float total = 0, mass = 0;
  for (std::size_t x = 0; x < p.size(); ++x) total -= a * p[x] * std::log(q[x]);
  for (std::int32_t i = 0; i < loss.k; ++i) mass += p[order[static_cast<std::size_t>(i)]];
  for (std::size_t x = 0; x < p.size(); ++x) gradient[x] = (a + w * mass) * q[x] - a * p[x];
  for (std::int32_t i = 0; i < loss.k; ++i) {
    const std::size_t x = order[static_cast<std::size_t>(i)];
    total -= w * p[x] * std::log(q[x]);
    gradient[x] -= w * p[x];
  }
  return static_cast<double>(total);
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// Windows of a pool of logits.
std::vector<float> random_rows(std::size_t v, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> pool(4 * v), out(v * count);
  for (float& l : pool) l = normal(random);
  for (std::size_t r = 0; r < count; ++r)
    std::copy_n(pool.begin() + static_cast<std::ptrdiff_t>(random() % (3 * v)), v,
                out.begin() + static_cast<std::ptrdiff_t>(r * v));
  return out;
}

void distillation(benchmark::State& state, bool with_gradient) {
  const auto v = static_cast<std::size_t>(state.range(0));
  const TopKDistillation loss{.k = static_cast<std::int32_t>(state.range(1))};
  const std::size_t count = (std::size_t{128} << 20) / (v * sizeof(float));  // far beyond any cache
  const std::vector<float> targets = random_rows(v, count, 1), drafts = random_rows(v, count, 2);
  std::vector<float> gradients(v * count);
  const auto row = [&](const std::vector<float>& rows, std::size_t i) { return Row(rows).subspan(i * v, v); };
  const auto timed = [](std::vector<double>& times, auto f) {
    const auto begin = Clock::now();
    benchmark::DoNotOptimize(f());
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  };
  std::vector<double> ours, streamed, plain;
  for (std::vector<double>* times : {&ours, &streamed, &plain}) times->reserve(1 << 20);
  std::size_t at = 0;
  for (auto _ : state) {
    const std::size_t a = at % count, b = (at + count / 3) % count, c = (at + 2 * count / 3) % count;
    ++at;
    const auto gradient = [&](std::size_t i) { return std::span<float>(gradients).subspan(i * v, v); };
    timed(ours, [&] {
      return loss.row(row(targets, a), row(drafts, a), with_gradient ? gradient(a) : std::span<float>());
    });
    state.SetIterationTime(ours.back());
    timed(streamed, [&] { return stream(row(targets, b)) ^ stream(row(drafts, b)); });
    if (with_gradient)
      timed(plain, [&] { return obvious(row(targets, c), row(drafts, c), loss, gradient(c)); });
  }
  state.counters["pair_us"] = 1e6 * median(ours);
  state.counters["stream_pair_us"] = 1e6 * median(streamed);
  state.counters["over_stream"] = median(ours) / median(streamed);
  if (with_gradient) state.counters["obvious_over_this"] = median(plain) / median(ours);
}

/// The same on another instruction set than this processor's widest.
void on_avx2(benchmark::State& state) {
  if (!supported(Isa::avx2)) return state.SkipWithError("this processor has no AVX2");
  const Isa before = detail::isa();
  detail::use_isa(Isa::avx2);
  distillation(state, true);
  detail::use_isa(before);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Unit(benchmark::kMicrosecond)->ArgNames({"vocab", "k"});
  for (const std::int64_t vocab : {2048, 128256}) b->Args({vocab, 10});
}

BENCHMARK_CAPTURE(distillation, gradient, true)->Apply(shapes);
BENCHMARK_CAPTURE(distillation, loss_only, false)->Apply(shapes);
BENCHMARK(on_avx2)->Apply(shapes);

}  // namespace
