// SPDX-License-Identifier: MIT
// Softmax kernels for one tile of a row: the part common to all instruction sets.
//
// No other file of the library exponentiates rows. A tile is 512 tokens; the caller pads the last one with
// -infinity. Numeric contract of every kernel but the reference:
// **Range.** Finite logits and -infinity; NaN and +infinity make a sum NaN. Weights below 2^-126 are 0.
// **Error.** Of a weight 4e-7 of exp(inv_t * (l - shift) - log_z) plus 2.4e-7 of its exponent; of a sum 1e-6.
// **Bits.** As AVX2 on AVX-512. Sums have one order: 128 columns of 4, in halves: 64, 32, ..., 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "specula/base/compiler_options.hpp"
#include "specula/base/half.hpp"
#include "specula/base/logit_weight.hpp"
#include "specula/base/rows.hpp"

namespace specula::detail {

inline constexpr std::int32_t kTile = 512;
inline constexpr std::int32_t kColumns = 128;

/// Whether a row is outside the supported range: its largest logit over the temperature exceeds 1e38. The
/// margin covers the rounding of 1e38 * T to a float.
inline bool too_large(float largest, double inv_t) {
  return std::abs(static_cast<double>(largest)) * inv_t > 1e38 * (1 + 1e-6);
}

/// A tile's maximum, and the sum of 2^(scale * (l - maximum) + rest) with scale = inv_t / ln 2. unit + rest
/// is scale * maximum, so the sum is in units of 2^unit. The fast kernels round scale to float and take the
/// integer nearest to scale * maximum as the unit, so tiles merge by exact powers of two; the product of
/// two floats is exact in a double, and no exponent is above 1/2, however large the logits. The sum of a
/// tile that holds NaN or +infinity is NaN; that of a tile of -infinity is 0.
struct TileStats {
  float maximum, rest;
  double unit;
  double sum;
};
/// The statistics of the fast kernels, before the sum.
inline TileStats tile_unit(float maximum, float scale) {
  const double product = static_cast<double>(maximum) * static_cast<double>(scale);
  const double unit = std::nearbyint(product);
  return {maximum, static_cast<float>(product - unit), unit, 0};
}

/// The weights of a distribution that is no point mass. The reference kernels use `distribution`.
struct Exponent : ExponentScalars {
  Distribution distribution;

  explicit Exponent(const Distribution& of) : ExponentScalars(of, of.inv_t), distribution(of) {}
};

/// One instruction set's kernels. Every pointer is to kTile numbers (stats: tiles * kTile), of any
/// alignment.
struct RowKernels {
  float (*maximum)(const float* logits);  // NaN if any is NaN
  /// Statistics of `tiles` consecutive tiles; reads them once from memory.
  void (*stats)(const float* logits, std::int32_t tiles, double inv_t, TileStats* out);
  double (*fill)(const float* logits, const Exponent& exponent, float* weights);  // returns their sum
  /// w = max(0, keep w - take less); returns their sum.
  double (*subtract)(float* weights, const float* less, float keep, float take);
  /// The result of fill, fill and subtract, without storing anything.
  double (*difference)(const float* logits, const Exponent& exponent, const float* less,
                       const Exponent& other, float keep, float take);
  /// out = keep * q - take * p, with the weights p of `target` and q of `draft`; returns the sum of p *
  /// log2(q), 0 where p is 0. Ignores truncation. `out` may be one of the input rows.
  double (*cross)(const float* target, const Exponent& p, const float* draft, const Exponent& q, float keep,
                  float take, float* out);
  double (*sum)(const float* weights);
  /// Logits of 16 bits as floats.
  void (*widen_half)(const std::uint16_t* halves, float* logits);
  void (*widen_bfloat16)(const std::uint16_t* upper, float* logits);
  /// Writes the indices of the logits above `bound` to `places` (kTile), in order; returns their number.
  std::int32_t (*above)(const float* logits, float bound, std::int32_t* places);
};

/// Double precision, one token after the other: the reference for tests of the fast kernels, and the
/// arithmetic with which tests enumerate the exact distributions of pipelines.
struct ReferenceKernels {
  static float maximum(const float* logits) {
    float best = logits[0];
    for (std::int32_t i = 0; i < kTile; ++i) {
      if (std::isnan(logits[i])) return logits[i];
      if (logits[i] > best) best = logits[i];
    }
    return best;
  }
  static void stats(const float* logits, std::int32_t tiles, double inv_t, TileStats* out) {
    for (std::int32_t t = 0; t < tiles; ++t, logits += kTile) {
      const float top = maximum(logits);
      out[t] = {top, 0.0f, static_cast<double>(top) * inv_t * kLog2E, 0.0};
      if (top == kNever) continue;
      for (std::int32_t i = 0; i < kTile; ++i)
        if (logits[i] != kNever)
          out[t].sum += std::exp(inv_t * (static_cast<double>(logits[i]) - static_cast<double>(top)));
    }
  }
  static double fill(const float* logits, const Exponent& e, float* weights) {
    double sum = 0;
    for (std::int32_t i = 0; i < kTile; ++i) {
      const double w = weight(logits[i], e);
      weights[i] = static_cast<float>(w);
      sum += w;
    }
    return sum;
  }
  static double subtract(float* weights, const float* less, float keep, float take) {
    double sum = 0;
    for (std::int32_t i = 0; i < kTile; ++i) {
      const double w = static_cast<double>(keep) * static_cast<double>(weights[i]) -
                       static_cast<double>(take) * static_cast<double>(less[i]);
      weights[i] = w <= 0 ? 0.0f : static_cast<float>(w);  // NaN stays
      sum += static_cast<double>(weights[i]);
    }
    return sum;
  }
  static double difference(const float* logits, const Exponent& e, const float* less, const Exponent& f,
                           float keep, float take) {
    double sum = 0;
    for (std::int32_t i = 0; i < kTile; ++i) {
      const double w =
          static_cast<double>(keep) * weight(logits[i], e) - static_cast<double>(take) * weight(less[i], f);
      sum += w <= 0 ? 0.0 : w;
    }
    return sum;
  }
  static double cross(const float* target, const Exponent& e, const float* draft, const Exponent& f,
                      float keep, float take, float* out) {
    double sum = 0;
    for (std::int32_t i = 0; i < kTile; ++i) {
      const double log_q = f.distribution.log_prob(draft[i]),
                   p = std::exp(e.distribution.log_prob(target[i])), q = std::exp(log_q);
      out[i] = static_cast<float>(static_cast<double>(keep) * q - static_cast<double>(take) * p);
      if (p != 0) sum += p * (log_q * kLog2E);
    }
    return sum;
  }
  static double sum(const float* weights) {
    double sum = 0;
    for (std::int32_t i = 0; i < kTile; ++i) sum += static_cast<double>(weights[i]);
    return sum;
  }
  static void widen_half(const std::uint16_t* halves, float* logits) {
    for (std::int32_t i = 0; i < kTile; ++i) logits[i] = half_to_float(halves[i]);
  }
  static void widen_bfloat16(const std::uint16_t* upper, float* logits) {
    for (std::int32_t i = 0; i < kTile; ++i) logits[i] = bfloat16_to_float(upper[i]);
  }
  static std::int32_t above(const float* logits, float bound, std::int32_t* places) {
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < kTile; ++i)
      if (logits[i] > bound) places[count++] = i;
    return count;
  }
  static constexpr RowKernels table() {
    return {maximum, stats, fill, subtract, difference, cross, sum, widen_half, widen_bfloat16, above};
  }

 private:
  static constexpr float kNever =
      -std::numeric_limits<float>::infinity();  // no exponential: most of a small row's tile
  static double weight(float l, const Exponent& of) {
    return l < of.min_logit || l == kNever ? 0.0 : std::exp(of.distribution.log_prob(l));
  }
};

}  // namespace specula::detail
