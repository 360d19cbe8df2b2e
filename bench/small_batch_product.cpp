// SPDX-License-Identifier: MIT
// One weight matrix times 1 to 64 inputs: the panel product on each instruction set (bfloat16 weights), and
// the alternative, Eigen's product with float weights; also the limit, multiply-adds on registers only. The
// weights of 8 layers are used in turn, as in a decoder, so that none is in the L1 or L2 cache. Counters:
// bytes of weights and multiply-adds per second. Arguments: rows, cols, inputs.
#include <benchmark/benchmark.h>
#include <Eigen/Core>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <specula/cpu/detail/bf16_product.hpp>
#include <specula/cpu/detail/panel_product.hpp>
#include <specula/cpu/inputs.hpp>
#include <specula/cpu/panel_matrix.hpp>

#if SPECULA_X86
#include <immintrin.h>
#endif

namespace {

using namespace specula::cpu;
using specula::best_isa;
using specula::Isa;

constexpr int kLayers = 8;

float number(std::int64_t i) { return static_cast<float>(i * 7919 % 1021 - 510) / 512.0f; }

void count(benchmark::State& state, std::size_t weight_bytes) {
  const auto rows = static_cast<double>(state.range(0)), cols = static_cast<double>(state.range(1)),
             n = static_cast<double>(state.range(2));
  using benchmark::Counter;
  state.counters["weights/s"] =
      Counter(rows * cols * static_cast<double>(weight_bytes), Counter::kIsIterationInvariantRate);
  state.counters["macs/s"] = Counter(rows * cols * n, Counter::kIsIterationInvariantRate);
}

/// `rounded`: the inputs to bfloat16 as well.
void panel(benchmark::State& state, Isa isa, bool rounded) {
  if (!specula::supported(isa) || (rounded && !has_bf16_products()))
    return state.SkipWithError("this machine does not have these instructions");
  const auto rows = static_cast<std::int32_t>(state.range(0)),
             cols = static_cast<std::int32_t>(state.range(1)), n = static_cast<std::int32_t>(state.range(2)),
             stride = detail::column_stride<float>(cols);
  std::vector<PanelMatrix<float>> layers;
  std::vector<float> row(static_cast<std::size_t>(cols)), x(static_cast<std::size_t>(stride * n)), y;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = number(static_cast<std::int64_t>(i));
  for (int l = 0; l < kLayers; ++l) {
    layers.emplace_back(rows, cols, WeightType::bf16);
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t k = 0; k < cols; ++k) row[static_cast<std::size_t>(k)] = number(r * 31 + k + l);
      layers.back().set_row(r, row);
    }
  }
  y.resize(static_cast<std::size_t>(layers[0].padded_rows() * n));
  detail::Bf16Product rounding(n, cols);
  std::size_t next = 0;
  for (auto _ : state) {
    const auto& w = layers[next++ % kLayers];
    const detail::Columns<float> io{x.data(), stride, y.data(), w.padded_rows()};
    if (rounded)
      rounding.run(w.bf16_panels(0), w.panels(), cols, io, n);
    else
      detail::panel_product(isa, w.bf16_panels(0), w.panels(), cols, io, n);
    benchmark::ClobberMemory();
  }
  count(state, 2);
}

void eigen(benchmark::State& state) {
  using Weights = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::vector<Weights> layers(kLayers, Weights::Random(state.range(0), state.range(1)));
  const Eigen::MatrixXf x = Eigen::MatrixXf::Random(state.range(1), state.range(2));
  Eigen::MatrixXf y(state.range(0), state.range(2));
  std::size_t next = 0;
  for (auto _ : state) {
    const auto& w = layers[next++ % kLayers];
    if (x.cols() == 1)
      y.col(0).noalias() = w * x.col(0);
    else
      y.noalias() = w * x;
    benchmark::ClobberMemory();
  }
  count(state, 4);
}

#if SPECULA_X86
/// 12 independent chains of multiply-adds: enough to hide their latency.
[[gnu::target("avx2,fma")]] void multiply_add_avx2() {
  __m256 sum[12], a = _mm256_set1_ps(1.0f), b = _mm256_set1_ps(0.5f);
  SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) sum[c] = _mm256_setzero_ps();
  for (int i = 0; i < 1000; ++i) {
    SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) {
      sum[c] = _mm256_fmadd_ps(a, b, sum[c]);
      __asm__("" : "+x"(sum[c]));  // or the loop is folded
    }
  }
  SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) __asm__ volatile("" : : "x"(sum[c]));
}
[[gnu::target("avx512f")]] void multiply_add_avx512() {
  __m512 sum[12], a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(0.5f);
  SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) sum[c] = _mm512_setzero_ps();
  for (int i = 0; i < 1000; ++i) {
    SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) {
      sum[c] = _mm512_fmadd_ps(a, b, sum[c]);
      __asm__("" : "+v"(sum[c]));
    }
  }
  SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) __asm__ volatile("" : : "v"(sum[c]));
}
[[gnu::target("avx512f,avx512bf16")]] void multiply_add_bf16() {
  __m512 sum[12];
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80), b = (__m512bh)_mm512_set1_epi32(0x3f003f00);
  SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) sum[c] = _mm512_setzero_ps();
  for (int i = 0; i < 1000; ++i) {
    SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) {
      sum[c] = _mm512_dpbf16_ps(sum[c], a, b);
      __asm__("" : "+v"(sum[c]));
    }
  }
  SPECULA_UNROLL_LANES for (int c = 0; c < 12; ++c) __asm__ volatile("" : : "v"(sum[c]));
}
/// `macs`: of a call of `function`.
void limit(benchmark::State& state, bool supported, void (*function)(), double macs) {
  if (!supported) return state.SkipWithError("this machine does not have these instructions");
  for (auto _ : state) function();
  state.counters["macs/s"] = benchmark::Counter(macs, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(limit, avx512_bf16, has_bf16_products(), multiply_add_bf16, 384000);
BENCHMARK_CAPTURE(limit, avx512, best_isa() >= Isa::avx512, multiply_add_avx512, 192000);
BENCHMARK_CAPTURE(limit, avx2, best_isa() >= Isa::avx2, multiply_add_avx2, 96000);
#endif

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "cols", "n"});
  for (const auto& shape : {std::pair{1376, 256}, std::pair{256, 688}, std::pair{2048, 256},
                            std::pair{2048, 384}, std::pair{384, 1024}})
    for (const std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 16, 64})
      benchmark->Args({shape.first, shape.second, n});
  benchmark->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(panel, avx512_bf16, Isa::avx512, true)->Apply(shapes);
BENCHMARK_CAPTURE(panel, avx512, Isa::avx512, false)->Apply(shapes);
BENCHMARK_CAPTURE(panel, avx2, Isa::avx2, false)->Apply(shapes);
BENCHMARK_CAPTURE(panel, portable, Isa::portable, false)->Apply(shapes);
BENCHMARK(eigen)->Apply(shapes);

}  // namespace
