// SPDX-License-Identifier: MIT
// labels: vectorised
// Vectorised exponentials: error bounds and range.
#include <specula/simd/exp.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <specula/simd/compiled.hpp>
#include "worst.hpp"

using namespace specula;
using namespace specula::simd;

namespace {

template <Isa isa>
struct Bodies {
  using V = Vectors<isa>;
  [[gnu::always_inline]] static inline void exp2_of(float* x) {
    for (int i = 0; i < kLanes; i += V::kWidth) {
      typename V::Floats y;
      V::load(y, x + i);
      simd::exp2<isa>(y);
      V::store(x + i, y);
    }
  }
  [[gnu::always_inline]] static inline void exp_of(float* x) {
    for (int i = 0; i < kLanes; i += V::kWidth) {
      typename V::Floats y;
      V::load(y, x + i);
      simd::exp<isa>(y);
      V::store(x + i, y);
    }
  }
};

struct Functions {
  const char* name;
  void (*exp2)(float*);
  void (*exp)(float*);
};
template <Isa isa>
Functions functions(const char* name) {
  return {name, compiled<isa, &Bodies<isa>::exp2_of>(), compiled<isa, &Bodies<isa>::exp_of>()};
}
std::vector<Functions> of_machine() {
  std::vector<Functions> all{functions<Isa::portable>("portable")};
#if SPECULA_X86
  if (supported(Isa::avx2)) all.push_back(functions<Isa::avx2>("AVX2"));
  if (supported(Isa::avx512)) all.push_back(functions<Isa::avx512>("AVX-512"));
#endif
  return all;
}

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The largest relative error of `function` over [from, from + span).
template <class Function, class Exact>
double largest_error(Function function, Exact exact, float from, float span) {
  double worst = 0;
  for (int i = 0; i < 20000; ++i) {
    float y[kLanes], x[kLanes];
    for (int k = 0; k < kLanes; ++k)
      x[k] = y[k] = from + span * static_cast<float>(i * kLanes + k) / (20000.0f * kLanes);
    function(y);
    for (int k = 0; k < kLanes; ++k)
      worst = specula_test::worse(worst,
                                  std::abs(static_cast<double>(y[k]) / exact(static_cast<double>(x[k])) - 1));
  }
  return worst;
}

}  // namespace

TEST_CASE("2^f: the polynomial's stated error") {
  double worst = 0;
  for (int i = -1000; i <= 1000; ++i) {
    const double f = i / 2000.0;
    double p = 0;
    for (int c = 5; c >= 0; --c) p = p * f + static_cast<double>(kExp2[c]);
    worst = specula_test::worse(worst, std::abs(p / std::exp2(f) - 1));
  }
  CHECK(worst < 1.6e-7);
}

TEST_CASE("exp2 is within 4e-7 from -126 to 126, 0 below, NaN for every NaN") {
  for (const Functions& f : of_machine()) {
    CAPTURE(f.name);
    CHECK(largest_error(
              f.exp2, [](double x) { return std::exp2(x); }, -126.0f, 251.9f) < 4e-7);
    float edge[kLanes] = {-126.0f, -126.001f, -126.4f, -127,  -200, -1e30f, -kInf,
                          0,       -0.0f,     0.5f,    -0.5f, 1.5f, -1.5f,  2.5f};
    edge[14] = std::bit_cast<float>(0x7FC00001u), edge[15] = std::bit_cast<float>(0xFFFFFFFFu);
    f.exp2(edge);
    CHECK(edge[0] >= 0x1p-126f);
    for (int k = 1; k < 7; ++k) CHECK(edge[k] == 0);
    CHECK(edge[7] == doctest::Approx(1).epsilon(2e-7));
    CHECK(edge[8] == edge[7]);
    CHECK(std::isnan(edge[14]));
    CHECK(std::isnan(edge[15]));
  }
}

TEST_CASE("exp2 has the same bits on AVX2 and AVX-512") {
  std::vector<Functions> all = of_machine();
  if (all.size() < 3) return;
  int differ = 0;
  for (int i = 0; i < 20000; ++i) {
    float a[kLanes], b[kLanes];
    for (int k = 0; k < kLanes; ++k) a[k] = b[k] = -130.0f + static_cast<float>(i * kLanes + k) / 2048.0f;
    all[1].exp2(a), all[2].exp2(b);
    for (int k = 0; k < kLanes; ++k)
      differ += std::bit_cast<std::uint32_t>(a[k]) != std::bit_cast<std::uint32_t>(b[k]);
  }
  CHECK(differ == 0);
}

TEST_CASE("exp2 and exp have the same bits in every lane") {
  for (const Functions& f : of_machine()) {
    CAPTURE(f.name);
    int differ = 0;
    for (int i = 0; i < 2000; ++i)
      for (const auto function : {f.exp2, f.exp}) {
        float x[kLanes];
        std::fill(x, x + kLanes, -87.0f + 0.0871f * static_cast<float>(i));
        function(x);
        for (int k = 1; k < kLanes; ++k)
          differ += std::bit_cast<std::uint32_t>(x[k]) != std::bit_cast<std::uint32_t>(x[0]);
      }
    CHECK(differ == 0);
  }
}

TEST_CASE("exp is within 2e-7 from -87 to 88, 0 below and for NaN, and exp(88) above") {
  for (const Functions& f : of_machine()) {
    CAPTURE(f.name);
    CHECK(largest_error(
              f.exp, [](double x) { return std::exp(x); }, -87.0f, 175.0f) < 2e-7);
    float x[kLanes] = {0, -87.01f, -1000, -kInf, 88, 89, 1000, kInf, 1, std::bit_cast<float>(0x7FC00001u)};
    f.exp(x);
    CHECK(x[9] == 0);
    CHECK(x[0] == 1);
    for (int k = 1; k < 4; ++k) CHECK(x[k] == 0);
    for (int k = 5; k < 8; ++k) CHECK(x[k] == x[4]);
    CHECK(x[8] == doctest::Approx(std::exp(1.0)).epsilon(2e-7));
  }
}
