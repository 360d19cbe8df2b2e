// The work of a decoder between its products: RMS norm, softmax and SwiGLU on our vectors, and as Eigen array
// expressions. Arguments: values, and for ours the instruction set (0 portable, 1 AVX2, 2 AVX-512). Eigen's
// instructions are those that the compiler was told to use: compile with -march=native for its best.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>

#include <specula/eigen/detail/aligned.hpp>
#include <specula/eigen/detail/elementwise.hpp>

namespace {

using specula::Isa;
using specula::eigen::detail::AlignedVector;
using specula::eigen::detail::Elementwise;
using Values = Eigen::Map<Eigen::ArrayXf>;

AlignedVector<float> random_values(std::int64_t size) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, 3);
  AlignedVector<float> out(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) out.data()[i] = normal(rng);
  return out;
}

/// x, y: inputs that no pass overwrites; out: (size).
struct Row {
  explicit Row(std::int64_t size)
      : x(random_values(size)),
        y(random_values(size)),
        out(random_values(size)),
        size(static_cast<std::int32_t>(size)) {}
  Values map(AlignedVector<float>& values) { return {values.data(), size}; }
  AlignedVector<float> x, y, out;
  std::int32_t size;
};

template <class Pass>
void measure(benchmark::State& state, Pass&& pass) {
  Row row(state.range(0));
  for (auto _ : state) {
    pass(row);
    benchmark::ClobberMemory();
  }
  state.counters["values/s"] =
      benchmark::Counter(static_cast<double>(row.size), benchmark::Counter::kIsIterationInvariantRate);
}

template <class Pass>
void ours(benchmark::State& state, Pass&& pass) {
  const Isa isa = std::array{Isa::portable, Isa::avx2, Isa::avx512}[static_cast<std::size_t>(state.range(1))];
  if (!specula::supported(isa))
    return state.SkipWithError("this machine does not have these instructions");
  const Elementwise<float> functions(isa);
  measure(state, [&](Row& row) { pass(functions, row); });
}

void rms_norm(benchmark::State& state) {
  ours(state, [](const auto& f, Row& r) { f.rms_norm(r.x.data(), r.y.data(), r.size, 1e-5f, r.out.data()); });
}
void rms_norm_eigen(benchmark::State& state) {
  measure(state, [](Row& r) {
    const auto x = r.map(r.x);
    r.map(r.out) = x * (1.0f / std::sqrt(x.square().mean() + 1e-5f)) * r.map(r.y);
  });
}

// In place, so each pass begins with a copy, in both.
void softmax(benchmark::State& state) {
  ours(state, [](const auto& f, Row& r) {
    std::copy_n(r.x.data(), r.size, r.out.data());
    benchmark::DoNotOptimize(f.softmax(r.out.data(), r.size));
  });
}
void softmax_eigen(benchmark::State& state) {
  measure(state, [](Row& r) {
    std::copy_n(r.x.data(), r.size, r.out.data());
    auto out = r.map(r.out);
    out = (out - out.maxCoeff()).exp();
    benchmark::DoNotOptimize(1.0f / out.sum());
  });
}

void swiglu(benchmark::State& state) {
  ours(state, [](const auto& f, Row& r) { f.swiglu(r.x.data(), r.y.data(), r.size, r.out.data()); });
}
void swiglu_eigen(benchmark::State& state) {
  measure(state, [](Row& r) {
    const auto gate = r.map(r.x);
    r.map(r.out) = gate / (1.0f + (-gate).exp()) * r.map(r.y);
  });
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"values", "isa"})->ArgsProduct({{384, 1024, 4096}, {0, 1, 2}});
}
void eigen_sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("values")->ArgsProduct({{384, 1024, 4096}});
}
BENCHMARK(rms_norm)->Apply(sizes);
BENCHMARK(rms_norm_eigen)->Apply(eigen_sizes);
BENCHMARK(softmax)->Apply(sizes);
BENCHMARK(softmax_eigen)->Apply(eigen_sizes);
BENCHMARK(swiglu)->Apply(sizes);
BENCHMARK(swiglu_eigen)->Apply(eigen_sizes);

}  // namespace
