// SPDX-License-Identifier: MIT
// labels: vectorised
// Elementwise functions (exp, softmax, RMSNorm, SwiGLU, rotary): against double, and lane by lane.
#include <specula/cpu/detail/elementwise.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "random.hpp"
#include "worst.hpp"

namespace {

using namespace specula::cpu;
using detail::Elementwise;
using specula::best_isa;
using specula::Isa;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Isa> machine_isas() {
  std::vector<Isa> all{Isa::portable};
  if (best_isa() >= Isa::avx2) all.push_back(Isa::avx2);
  if (best_isa() >= Isa::avx512) all.push_back(Isa::avx512);
  return all;
}

TEST_CASE("exp is within 2e-7 from -87 to 88, and 0 below") {
  // Seen through softmax: row[i] = exp(row[i] - max).
  for (const Isa isa : machine_isas()) {
    const Elementwise<float> f(isa);
    double worst = 0;
    for (int i = 0; i < 200000; ++i) {
      float row[16];
      for (int k = 0; k < 16; ++k)
        row[k] = k == 0 ? 0.0f : -87.0f * static_cast<float>(i * 16 + k) / 3200016.0f;
      float x[16];
      std::copy(row, row + 16, x);
      f.softmax(row, 16);
      for (int k = 0; k < 16; ++k)
        worst = specula_test::worse(
            worst, std::abs(static_cast<double>(row[k]) / std::exp(static_cast<double>(x[k])) - 1));
    }
    CHECK(worst < 2e-7);
    float edge[16] = {0, -87.0f, -87.01f, -88, -1000, -kInfinity, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    f.softmax(edge, 16);
    CHECK(edge[0] == 1);
    CHECK(edge[1] > 0);
    for (int k = 2; k < 6; ++k) CHECK(edge[k] == 0);
  }
}

TEST_CASE("softmax: padding has no effect, and the sum is right") {
  specula_test::Random random(21);
  for (const Isa isa : machine_isas()) {
    const Elementwise<float> f(isa);
    for (const std::int32_t n : {1, 15, 16, 17, 100, 1000}) {
      const std::int32_t padded = (n + 15) / 16 * 16;
      std::vector<float> row(static_cast<std::size_t>(padded) + 32, -kInfinity), x;
      for (std::int32_t i = 0; i < n; ++i)
        row[static_cast<std::size_t>(i)] = static_cast<float>(random.between(-20, 20));
      x = row;
      auto longer = row;
      const float inverse = f.softmax(row.data(), padded);
      CHECK(f.softmax(longer.data(), padded + 32) == inverse);
      double most = -1e9, total = 0;
      for (std::int32_t i = 0; i < n; ++i)
        most = std::max(most, static_cast<double>(x[static_cast<std::size_t>(i)]));
      for (std::int32_t i = 0; i < n; ++i)
        total += std::exp(static_cast<double>(x[static_cast<std::size_t>(i)]) - most);
      CHECK(static_cast<double>(inverse) == doctest::Approx(1 / total).epsilon(1e-5));
      for (std::int32_t i = n; i < padded; ++i) CHECK(row[static_cast<std::size_t>(i)] == 0);
    }
  }
}

TEST_CASE("all lanes give the same results") {
  for (const Isa isa : machine_isas()) {
    const Elementwise<float> f(isa);
    specula_test::Random random(22);
    for (int round = 0; round < 200; ++round) {
      const auto gate = static_cast<float>(random.between(-12, 12)),
                 up = static_cast<float>(random.between(-3, 3));
      const std::vector<float> gates(32, gate), ups(32, up);
      std::vector<float> out(32), row(32, gate);
      f.swiglu(gates.data(), ups.data(), 32, out.data());
      row[7] = 13.0f;
      f.softmax(row.data(), 32);
      for (std::size_t i = 1; i < 32; ++i) CHECK(out[i] == out[0]);
      for (std::size_t i = 1; i < 32; ++i) CHECK((i == 7 || row[i] == row[0]));
      f.rms_norm(gates.data(), ups.data(), 32, 1e-5f, out.data());
      for (std::size_t i = 1; i < 32; ++i) CHECK(out[i] == out[0]);
      f.rotate(gates.data(), ups.data(), ups.data(), 16, 0.25f, out.data());
      for (std::size_t i = 1; i < 32; ++i) CHECK(out[i] == out[i / 16 * 16]);
    }
  }
}

TEST_CASE("rms_norm, swiglu, rotate and similarity against double") {
  specula_test::Random random(23);
  for (const Isa isa : machine_isas()) {
    const Elementwise<float> f(isa);
    const Elementwise<double> d(isa);
    for (const std::int32_t n : {1, 5, 16, 37, 256}) {
      const auto padded = static_cast<std::size_t>((n + 15) / 16 * 16 + 16),
                 size = static_cast<std::size_t>(n);
      std::vector<float> x(padded), w(padded), out(2 * padded + 32), x2(2 * padded + 32);
      std::vector<double> dx(padded), dw(padded), dout(2 * padded), dx2(2 * padded);
      for (std::size_t i = 0; i < size; ++i)
        dx[i] = x[i] = static_cast<float>(random.between(-4, 4)),
        dw[i] = w[i] = static_cast<float>(random.between(-1, 1));
      for (std::size_t i = 0; i < 2 * size; ++i) dx2[i] = x2[i] = static_cast<float>(random.between(-4, 4));
      const auto close = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
          CHECK(static_cast<double>(out[i]) == doctest::Approx(dout[i]).epsilon(2e-6).scale(1));
      };
      f.rms_norm(x.data(), w.data(), n, 1e-5f, out.data());
      d.rms_norm(dx.data(), dw.data(), n, 1e-5, dout.data());
      close(size);
      f.swiglu(x.data(), w.data(), n, out.data());
      d.swiglu(dx.data(), dw.data(), n, dout.data());
      close(size);
      f.rotate(x2.data(), x.data(), w.data(), n, 0.25f, out.data());
      d.rotate(dx2.data(), dx.data(), dw.data(), n, 0.25, dout.data());
      close(2 * size);
      CHECK(static_cast<double>(f.similarity(x.data(), w.data(), n)) ==
            doctest::Approx(d.similarity(dx.data(), dw.data(), n)).epsilon(2e-6).scale(1));
    }
    const std::vector<float> nothing(16);
    CHECK(f.similarity(nothing.data(), nothing.data(), 16) == 1);
    float gate[16] = {-200, 200, -100, 100, 0}, up[16] = {2, 2, 2, 2, 2}, out[16];
    f.swiglu(gate, up, 16, out);
    CHECK(out[0] == doctest::Approx(0).scale(1));
    CHECK(out[1] == doctest::Approx(400));
    CHECK(out[4] == 0);
  }
}

}  // namespace
