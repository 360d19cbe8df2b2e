// SPDX-License-Identifier: MIT
// Where Eigen stands: one layer's matrix products over a long prompt, and what comes between them, by this
// library's kernels and by Eigen.
//
// Eigen has the instructions that this file is compiled for, the library's kernels those of the machine: as a
// program is compiled here, for the machine itself in eigen_native.cpp. Sizes of the embedded target: hidden
// 384, intermediate 1024, 6 heads of 64 over 2 KV heads. One thread, weights in bfloat16.
#include <benchmark/benchmark.h>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <specula/cpu/detail/bf16_product.hpp>
#include <specula/cpu/detail/elementwise.hpp>
#include <specula/cpu/detail/panel_product.hpp>
#include <specula/cpu/inputs.hpp>
#include <specula/cpu/panel_matrix.hpp>

namespace {

using namespace specula::cpu;
using specula::best_isa;
using specula::Isa;

constexpr std::pair<std::int32_t, std::int32_t> kLayer[] = {{640, 384}, {384, 384}, {2048, 384}, {384, 1024}};
constexpr std::int32_t kMaxCols = 1024;

float number(std::int64_t i) { return static_cast<float>(i * 7919 % 1021 - 510) / 512.0f; }

struct Batch {
  explicit Batch(std::int32_t tokens)
      : stride(detail::column_stride<float>(kMaxCols)),
        out_stride(detail::column_stride<float>(2048)),
        x(static_cast<std::size_t>(stride) * static_cast<std::size_t>(tokens)),
        y(static_cast<std::size_t>(out_stride) * static_cast<std::size_t>(tokens)) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = number(static_cast<std::int64_t>(i));
  }
  std::ptrdiff_t stride, out_stride;
  detail::AlignedVector<float> x, y;
};

std::vector<PanelMatrix<float>> layer() {
  std::vector<PanelMatrix<float>> all;
  for (const auto& [rows, cols] : kLayer) {
    std::vector<float> row(static_cast<std::size_t>(cols));
    all.emplace_back(rows, cols, WeightType::bf16);
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t k = 0; k < cols; ++k) row[static_cast<std::size_t>(k)] = number(r * 31 + k);
      all.back().set_row(r, row);
    }
  }
  return all;
}

/// `run(matrix, columns)` for a layer's matrices.
template <class Run>
void products(benchmark::State& state, Run run) {
  const auto tokens = static_cast<std::int32_t>(state.range(0));
  Batch at(tokens);
  const auto matrices = layer();
  for (auto _ : state) {
    for (const auto& w : matrices)
      run(w, detail::Columns<float>{at.x.data(), at.stride, at.y.data(), at.out_stride}, tokens);
    benchmark::ClobberMemory();
  }
}

void panels(benchmark::State& state, Isa isa) {
  products(state, [&](const auto& w, detail::Columns<float> io, std::int32_t tokens) {
    detail::panel_product(isa, w.bf16_panels(0), w.panels(), w.cols(), io, tokens);
  });
}
void rounded(benchmark::State& state) {
  if (!has_bf16_products()) return state.SkipWithError("this machine does not have these instructions");
  detail::Bf16Product product(static_cast<std::int32_t>(state.range(0)), kMaxCols);
  products(state, [&](const auto& w, detail::Columns<float> io, std::int32_t tokens) {
    product.run(w.bf16_panels(0), w.panels(), w.cols(), io, tokens);
  });
}
/// Eigen's product of weights that are floats in memory, four bytes each.
void whole(benchmark::State& state) {
  const Eigen::Index tokens = state.range(0);
  std::vector<Eigen::MatrixXf> w, x, y;
  for (const auto& [rows, cols] : kLayer) {
    w.push_back(Eigen::MatrixXf::Random(rows, cols));
    x.push_back(Eigen::MatrixXf::Random(cols, tokens));
    y.emplace_back(rows, tokens);
  }
  for (auto _ : state) {
    for (std::size_t i = 0; i < w.size(); ++i) y[i].noalias() = w[i] * x[i];
    benchmark::ClobberMemory();
  }
}

void tokens(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("tokens")->Arg(16)->Arg(256)->Arg(1024)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(panels, best, best_isa())->Apply(tokens);
BENCHMARK_CAPTURE(panels, portable, Isa::portable)->Apply(tokens);
BENCHMARK(rounded)->Apply(tokens);
BENCHMARK(whole)->Apply(tokens);

// ---- between the products: one vector

using Array = Eigen::Map<Eigen::ArrayXf>;

struct Vectors {
  explicit Vectors(benchmark::State& state) : size(static_cast<std::int32_t>(state.range(0))) {
    for (auto* v : {&a, &b, &out}) v->resize(static_cast<std::size_t>(size + 15) / 16 * 16);
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] = number(static_cast<std::int64_t>(i)), b[i] = number(static_cast<std::int64_t>(3 * i));
  }
  std::int32_t size;
  detail::AlignedVector<float> a, b, out;
  detail::Elementwise<float> ours{best_isa()};
  Array x() { return {a.data(), size}; }
  Array w() { return {b.data(), size}; }
  Array to() { return {out.data(), size}; }
};

void rms_norm(benchmark::State& state, bool eigen) {
  Vectors v(state);
  for (auto _ : state) {
    if (eigen)
      v.to() = v.x() * (1.0f / std::sqrt(v.x().square().mean() + 1e-6f)) * v.w();
    else
      v.ours.rms_norm(v.a.data(), v.b.data(), v.size, 1e-6f, v.out.data());
    benchmark::ClobberMemory();
  }
}
void swiglu(benchmark::State& state, bool eigen) {
  Vectors v(state);
  for (auto _ : state) {
    if (eigen)
      v.to() = v.x() / ((-v.x()).exp() + 1.0f) * v.w();
    else
      v.ours.swiglu(v.a.data(), v.b.data(), v.size, v.out.data());
    benchmark::ClobberMemory();
  }
}
/// Copies the scores first: both work in place.
void softmax(benchmark::State& state, bool eigen) {
  Vectors v(state);
  for (auto _ : state) {
    std::copy(v.a.begin(), v.a.end(), v.out.begin());
    if (eigen) {
      v.to() = (v.to() - v.to().maxCoeff()).exp();
      benchmark::DoNotOptimize(1.0f / v.to().sum());
    } else {
      benchmark::DoNotOptimize(v.ours.softmax(v.out.data(), v.size));
    }
    benchmark::ClobberMemory();
  }
}
/// Of 10,000 values, how many give the same bits at the end of an array of 33 as at its begin.
void ends(benchmark::State& state, bool eigen) {
  Vectors v(state);
  const auto last = static_cast<std::size_t>(v.size - 1);
  int same = 0;
  for (auto _ : state) {
    same = 0;
    for (int i = 0; i < 10000; ++i) {
      std::fill(v.a.begin(), v.a.end(), -20.0f + 0.004f * static_cast<float>(i));
      std::fill(v.b.begin(), v.b.end(), 1.25f);
      if (eigen)
        v.to() = v.x() / ((-v.x()).exp() + 1.0f) * v.w();
      else
        v.ours.swiglu(v.a.data(), v.b.data(), v.size, v.out.data());
      same += v.out[0] == v.out[last];
    }
  }
  state.counters["same"] = same;
}
BENCHMARK_CAPTURE(rms_norm, ours, false)->ArgName("size")->Arg(384)->Arg(4096);
BENCHMARK_CAPTURE(rms_norm, eigen, true)->ArgName("size")->Arg(384)->Arg(4096);
BENCHMARK_CAPTURE(swiglu, ours, false)->ArgName("size")->Arg(1024)->Arg(11008);
BENCHMARK_CAPTURE(swiglu, eigen, true)->ArgName("size")->Arg(1024)->Arg(11008);
BENCHMARK_CAPTURE(softmax, ours, false)->ArgName("size")->Arg(256)->Arg(1024);
BENCHMARK_CAPTURE(softmax, eigen, true)->ArgName("size")->Arg(256)->Arg(1024);
BENCHMARK_CAPTURE(ends, ours, false)->ArgName("size")->Arg(33)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ends, eigen, true)->ArgName("size")->Arg(33)->Unit(benchmark::kMicrosecond);

}  // namespace
