// SPDX-License-Identifier: MIT
// Elementwise operations of a decoder: RMS norm, softmax weights, SiLU, RoPE, cosine similarity. For float
// they run in blocks of 16 lanes, with padded buffers in place of a remainder loop. For double: loops.
// **Range.** Finite values, and -infinity in softmax, whose weights below exp(-87) are 0.
// **Error.** 2e-6 of 1 + |value|; of softmax, relative: weights 2e-7, 1 / sum 1e-5.
// **Bits.** A value's depend neither on its place nor on the padding; instruction sets may differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "specula/cpu/detail/panel.hpp"
#include "specula/simd/compiled.hpp"
#include "specula/simd/exp.hpp"
#include "specula/simd/vectors.hpp"

namespace specula::cpu::detail {

/// Bodies that are compiled once per instruction set. Blocks of 16 lanes as simd/vectors.hpp has them.
template <Isa isa>
struct Blocks {
  using V = simd::Vectors<isa>;
  using Part = typename V::Floats;
  static constexpr int kWidth = V::kWidth, kParts = V::kParts;

  [[gnu::always_inline]] static inline void rms_norm(const float* x, const float* weight, std::int32_t size,
                                                     float eps, float* out) {
    Part squares[kParts]{}, a, b;
    for (std::int32_t i = 0; i < size; i += kPanel) {
      SPECULA_UNROLL_LANES for (int p = 0; p < kParts; ++p) V::load(a, x + i + p * kWidth),
          squares[p] += a * a;
    }
    const float scale = 1.0f / std::sqrt(V::sum(squares) / static_cast<float>(size) + eps);
    for (std::int32_t i = 0; i < round_up(size, kPanel); i += kWidth)
      V::load(a, x + i), V::load(b, weight + i), V::store(out + i, a * scale * b);
  }

  [[gnu::always_inline]] static inline float similarity(const float* x, const float* added,
                                                        std::int32_t size) {
    Part xx[kParts]{}, xy[kParts]{}, yy[kParts]{}, a, b;
    for (std::int32_t i = 0; i < size; i += kPanel) {
      SPECULA_UNROLL_LANES for (int p = 0; p < kParts; ++p) {
        V::load(a, x + i + p * kWidth), V::load(b, added + i + p * kWidth);
        b += a;
        xx[p] += a * a, xy[p] += a * b, yy[p] += b * b;
      }
    }
    const float lengths = std::sqrt(V::sum(xx)) * std::sqrt(V::sum(yy));
    return lengths > 0 ? V::sum(xy) / lengths : 1.0f;
  }

  [[gnu::always_inline]] static inline float softmax(float* row, std::int32_t size) {
    Part a, peak, total[kParts]{};
    V::load(peak, row);
    for (std::int32_t i = kWidth; i < size; i += kWidth) V::load(a, row + i), V::select(peak, a > peak, a);
    float most = peak[0];
    for (std::int32_t i = 1; i < kWidth; ++i) most = std::max(most, peak[i]);
    for (std::int32_t i = 0; i < size; i += kPanel) {
      SPECULA_UNROLL_LANES for (int p = 0; p < kParts; ++p) {
        V::load(a, row + i + p * kWidth);
        a -= most;
        simd::exp<isa>(a);
        total[p] += a;
        V::store(row + i + p * kWidth, a);
      }
    }
    return 1.0f / V::sum(total);
  }

  [[gnu::always_inline]] static inline void swiglu(const float* gate, const float* up, std::int32_t size,
                                                   float* out) {
    for (std::int32_t i = 0; i < round_up(size, kPanel); i += kWidth) {
      Part g, u, e;
      V::load(g, gate + i), V::load(u, up + i);
      e = -g;
      simd::exp<isa>(e);
      V::store(out + i, g / (e + 1.0f) * u);
    }
  }

  [[gnu::always_inline]] static inline void rotate(const float* x, const float* cosine, const float* sine,
                                                   std::int32_t half, float scale, float* out) {
    Part a, b, c, s;
    const std::int32_t padded = round_up(half, kPanel);
    for (std::int32_t i = 0; i < padded; i += kWidth) {
      V::load(a, x + i), V::load(b, x + half + i), V::load(c, cosine + i), V::load(s, sine + i);
      V::store(out + i, (a * c - b * s) * scale);
    }
    for (std::int32_t i = 0; i < padded; i += kWidth) {
      V::load(a, x + i), V::load(b, x + half + i), V::load(c, cosine + i), V::load(s, sine + i);
      V::store(out + half + i, (b * c + a * s) * scale);
    }
  }
};

/// The functions of one compute type on one instruction set.
template <class Real>
struct Elementwise;

template <>
struct Elementwise<float> {
  /// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i], i < size; all are padded with zeros to a multiple
  /// of 16.
  void (*rms_norm)(const float* x, const float* weight, std::int32_t size, float eps, float* out);
  /// The cosine of x and x + added (size); 1 where one of them is zero. Padded as above.
  float (*similarity)(const float* x, const float* added, std::int32_t size);
  /// row[i] = exp(row[i] - max), i < size, a multiple of 16 (pad with -infinity). Returns 1 / their sum.
  float (*softmax)(float* row, std::int32_t size);
  /// out[i] = silu(gate[i]) * up[i], i < size; writes, and reads, up to the next multiple of 16.
  void (*swiglu)(const float* gate, const float* up, std::int32_t size, float* out);
  /// out = x, each pair (i, half + i) turned by its angle, times scale. Writes, and reads, up to 15 values
  /// after the end.
  void (*rotate)(const float* x, const float* cosine, const float* sine, std::int32_t half, float scale,
                 float* out);

  explicit Elementwise(Isa isa) : Elementwise(of<Isa::portable>()) {
#if SPECULA_X86
    if (isa == Isa::avx512) *this = of<Isa::avx512>();
    if (isa == Isa::avx2) *this = of<Isa::avx2>();
#endif
    static_cast<void>(isa);
  }

 private:
  Elementwise() = default;

  template <Isa isa>
  static Elementwise of() {
    using B = Blocks<isa>;
    Elementwise out;
    out.rms_norm = simd::compiled<isa, &B::rms_norm>();
    out.similarity = simd::compiled<isa, &B::similarity>();
    out.softmax = simd::compiled<isa, &B::softmax>();
    out.swiglu = simd::compiled<isa, &B::swiglu>();
    out.rotate = simd::compiled<isa, &B::rotate>();
    return out;
  }
};

template <>
struct Elementwise<double> {
  explicit Elementwise(Isa) {}

  static void rms_norm(const double* x, const double* weight, std::int32_t size, double eps, double* out) {
    double squares = 0;
    for (std::int32_t i = 0; i < size; ++i) squares += x[i] * x[i];
    const double scale = 1 / std::sqrt(squares / size + eps);
    for (std::int32_t i = 0; i < size; ++i) out[i] = x[i] * scale * weight[i];
  }
  static double similarity(const double* x, const double* added, std::int32_t size) {
    double xx = 0, xy = 0, yy = 0;
    for (std::int32_t i = 0; i < size; ++i) {
      const double y = x[i] + added[i];
      xx += x[i] * x[i], xy += x[i] * y, yy += y * y;
    }
    const double lengths = std::sqrt(xx) * std::sqrt(yy);
    return lengths > 0 ? xy / lengths : 1;
  }
  static double softmax(double* row, std::int32_t size) {
    const double most = *std::max_element(row, row + size);
    double total = 0;
    for (std::int32_t i = 0; i < size; ++i) total += row[i] = std::exp(row[i] - most);
    return 1 / total;
  }
  static void swiglu(const double* gate, const double* up, std::int32_t size, double* out) {
    for (std::int32_t i = 0; i < size; ++i) out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
  static void rotate(const double* x, const double* cosine, const double* sine, std::int32_t half,
                     double scale, double* out) {
    for (std::int32_t i = 0; i < half; ++i) {
      out[i] = (x[i] * cosine[i] - x[half + i] * sine[i]) * scale;
      out[half + i] = (x[half + i] * cosine[i] + x[i] * sine[i]) * scale;
    }
  }
};

}  // namespace specula::cpu::detail
