// What a decoder does between its products. For float everything runs in blocks of 16 lanes that are all
// treated alike, in one instance of the code, so that a value's bits do not depend on where it lies; buffers
// are padded instead of having a remainder. For double it is the textbook.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "specula/eigen/detail/isa.hpp"
#include "specula/eigen/detail/panel.hpp"

namespace specula::eigen::detail {

#if !defined(__GNUC__)
#error "specula/eigen needs vector extensions as GCC and Clang have them"
#endif

struct Bytes16 {  // of a register
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::int32_t Ints __attribute__((vector_size(16)));
};
struct Bytes32 {
  typedef float Floats __attribute__((vector_size(32)));
  typedef std::int32_t Ints __attribute__((vector_size(32)));
};
struct Bytes64 {
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::int32_t Ints __attribute__((vector_size(64)));
};

/// Bodies without instructions of their own: each is compiled once per instruction set by the wrappers below,
/// for its registers. A block of 16 lanes is kParts of them, one by one: g++ moves the lanes of a vector that
/// is wider than its registers through memory. Vectors go by reference, because passing them by value depends
/// on the instruction set.
template <class Register>
struct Blocks {
  using Part = typename Register::Floats;
  using IntPart = typename Register::Ints;
  static constexpr int kWidth = sizeof(Part) / sizeof(float), kParts = kPanel / kWidth;

  [[gnu::always_inline]] static inline void load(Part& out, const float* from) {
    std::memcpy(&out, from, sizeof(Part));
  }
  [[gnu::always_inline]] static inline void store(float* to, const Part& from) {
    std::memcpy(to, &from, sizeof(Part));
  }

  /// One fixed tree over 16 lanes, whatever they were summed from.
  [[gnu::always_inline]] static inline float sum(const Part (&x)[kParts]) {
    float part[kPanel];
    std::memcpy(part, x, sizeof(part));
    for (std::int32_t width = kPanel / 2; width > 0; width /= 2)
      for (std::int32_t i = 0; i < width; ++i) part[i] += part[i + width];
    return part[0];
  }

  [[gnu::always_inline]] static inline void select(Part& out, const IntPart& where, const Part& then) {
    out = (Part)((where & (IntPart)then) | (~where & (IntPart)out));
  }

  /// x = exp(x): relative error below 2e-7 for x in [-87, 88]; 0 below, exp(88) above. Polynomial: Cephes,
  /// expf.
  [[gnu::always_inline]] static inline void exp(Part& x) {
    const IntPart below = ~(x >= -87.0f);
    select(x, below, Part{});
    select(x, x > 88.0f, Part{} + 88.0f);
    const Part shifted =
        x * 1.44269504088896341f + 12582912.0f;  // adding 1.5 * 2^23 rounds to the nearest integer
    const Part n = shifted - 12582912.0f;
    const Part r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Part p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    x = p * (Part)((__builtin_convertvector(n, IntPart) + 127) << 23);
    select(x, below, Part{});
  }

  [[gnu::always_inline]] static inline void rms_norm(const float* x, const float* weight, std::int32_t size,
                                                     float eps, float* out) {
    Part squares[kParts]{}, a, b;
    for (std::int32_t i = 0; i < size; i += kPanel) {
      SPECULA_EIGEN_UNROLL for (int p = 0; p < kParts; ++p) load(a, x + i + p * kWidth), squares[p] += a * a;
    }
    const float scale = 1.0f / std::sqrt(sum(squares) / static_cast<float>(size) + eps);
    for (std::int32_t i = 0; i < round_up(size, kPanel); i += kWidth)
      load(a, x + i), load(b, weight + i), store(out + i, a * scale * b);
  }

  [[gnu::always_inline]] static inline float similarity(const float* x, const float* added,
                                                        std::int32_t size) {
    Part xx[kParts]{}, xy[kParts]{}, yy[kParts]{}, a, b;
    for (std::int32_t i = 0; i < size; i += kPanel) {
      SPECULA_EIGEN_UNROLL for (int p = 0; p < kParts; ++p) {
        load(a, x + i + p * kWidth), load(b, added + i + p * kWidth);
        b += a;
        xx[p] += a * a, xy[p] += a * b, yy[p] += b * b;
      }
    }
    const float lengths = std::sqrt(sum(xx)) * std::sqrt(sum(yy));
    return lengths > 0 ? sum(xy) / lengths : 1.0f;
  }

  [[gnu::always_inline]] static inline float softmax(float* row, std::int32_t size) {
    Part a, peak, total[kParts]{};
    load(peak, row);
    for (std::int32_t i = kWidth; i < size; i += kWidth) load(a, row + i), select(peak, a > peak, a);
    float most = peak[0];
    for (std::int32_t i = 1; i < kWidth; ++i) most = std::max(most, peak[i]);
    for (std::int32_t i = 0; i < size; i += kPanel) {
      SPECULA_EIGEN_UNROLL for (int p = 0; p < kParts; ++p) {
        load(a, row + i + p * kWidth);
        a -= most;
        exp(a);
        total[p] += a;
        store(row + i + p * kWidth, a);
      }
    }
    return 1.0f / sum(total);
  }

  [[gnu::always_inline]] static inline void swiglu(const float* gate, const float* up, std::int32_t size,
                                                   float* out) {
    for (std::int32_t i = 0; i < round_up(size, kPanel); i += kWidth) {
      Part g, u, e;
      load(g, gate + i), load(u, up + i);
      e = -g;
      exp(e);
      store(out + i, g / (e + 1.0f) * u);
    }
  }

  [[gnu::always_inline]] static inline void rotate(const float* x, const float* cosine, const float* sine,
                                                   std::int32_t half, float scale, float* out) {
    Part a, b, c, s;
    const std::int32_t padded = round_up(half, kPanel);
    for (std::int32_t i = 0; i < padded; i += kWidth) {
      load(a, x + i), load(b, x + half + i), load(c, cosine + i), load(s, sine + i);
      store(out + i, (a * c - b * s) * scale);
    }
    for (std::int32_t i = 0; i < padded; i += kWidth) {
      load(a, x + i), load(b, x + half + i), load(c, cosine + i), load(s, sine + i);
      store(out + half + i, (b * c + a * s) * scale);
    }
  }
};

#if SPECULA_EIGEN_X86
struct BlocksAvx512 {
  [[gnu::target("avx512f")]] static float similarity(const float* x, const float* added, std::int32_t size) {
    return Blocks<Bytes64>::similarity(x, added, size);
  }
  [[gnu::target("avx512f")]] static void rms_norm(const float* x, const float* weight, std::int32_t size,
                                                  float eps, float* out) {
    Blocks<Bytes64>::rms_norm(x, weight, size, eps, out);
  }
  [[gnu::target("avx512f")]] static float softmax(float* row, std::int32_t size) {
    return Blocks<Bytes64>::softmax(row, size);
  }
  [[gnu::target("avx512f")]] static void swiglu(const float* gate, const float* up, std::int32_t size,
                                                float* out) {
    Blocks<Bytes64>::swiglu(gate, up, size, out);
  }
  [[gnu::target("avx512f")]] static void rotate(const float* x, const float* cosine, const float* sine,
                                                std::int32_t half, float scale, float* out) {
    Blocks<Bytes64>::rotate(x, cosine, sine, half, scale, out);
  }
};
struct BlocksAvx2 {
  [[gnu::target("avx2,fma")]] static float similarity(const float* x, const float* added, std::int32_t size) {
    return Blocks<Bytes32>::similarity(x, added, size);
  }
  [[gnu::target("avx2,fma")]] static void rms_norm(const float* x, const float* weight, std::int32_t size,
                                                   float eps, float* out) {
    Blocks<Bytes32>::rms_norm(x, weight, size, eps, out);
  }
  [[gnu::target("avx2,fma")]] static float softmax(float* row, std::int32_t size) {
    return Blocks<Bytes32>::softmax(row, size);
  }
  [[gnu::target("avx2,fma")]] static void swiglu(const float* gate, const float* up, std::int32_t size,
                                                 float* out) {
    Blocks<Bytes32>::swiglu(gate, up, size, out);
  }
  [[gnu::target("avx2,fma")]] static void rotate(const float* x, const float* cosine, const float* sine,
                                                 std::int32_t half, float scale, float* out) {
    Blocks<Bytes32>::rotate(x, cosine, sine, half, scale, out);
  }
};
#endif
struct BlocksPortable {
  [[gnu::noinline]] static float similarity(const float* x, const float* added, std::int32_t size) {
    return Blocks<Bytes16>::similarity(x, added, size);
  }
  [[gnu::noinline]] static void rms_norm(const float* x, const float* weight, std::int32_t size, float eps,
                                         float* out) {
    Blocks<Bytes16>::rms_norm(x, weight, size, eps, out);
  }
  [[gnu::noinline]] static float softmax(float* row, std::int32_t size) {
    return Blocks<Bytes16>::softmax(row, size);
  }
  [[gnu::noinline]] static void swiglu(const float* gate, const float* up, std::int32_t size, float* out) {
    Blocks<Bytes16>::swiglu(gate, up, size, out);
  }
  [[gnu::noinline]] static void rotate(const float* x, const float* cosine, const float* sine,
                                       std::int32_t half, float scale, float* out) {
    Blocks<Bytes16>::rotate(x, cosine, sine, half, scale, out);
  }
};

/// The functions of one calculation type on one instruction set.
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
  /// behind the end.
  void (*rotate)(const float* x, const float* cosine, const float* sine, std::int32_t half, float scale,
                 float* out);

  explicit Elementwise(Isa isa)
      : rms_norm(BlocksPortable::rms_norm),
        similarity(BlocksPortable::similarity),
        softmax(BlocksPortable::softmax),
        swiglu(BlocksPortable::swiglu),
        rotate(BlocksPortable::rotate) {
#if SPECULA_EIGEN_X86
    if (isa == Isa::avx512)
      rms_norm = BlocksAvx512::rms_norm, softmax = BlocksAvx512::softmax, swiglu = BlocksAvx512::swiglu,
      rotate = BlocksAvx512::rotate, similarity = BlocksAvx512::similarity;
    if (isa == Isa::avx2)
      rms_norm = BlocksAvx2::rms_norm, softmax = BlocksAvx2::softmax, swiglu = BlocksAvx2::swiglu,
      rotate = BlocksAvx2::rotate, similarity = BlocksAvx2::similarity;
#endif
    static_cast<void>(isa);
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

}  // namespace specula::eigen::detail
