// Portable tile kernels: plain loops of fixed length, which compilers vectorise for SSE2, NEON or better.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "specula/distribution/row_kernels.hpp"

namespace specula::detail {

struct PortableKernels {
  static float maximum(const float* logits) {
    float best[kColumns];
    std::int32_t nan[kColumns];
    for (std::int32_t j = 0; j < kColumns; ++j) best[j] = logits[j], nan[j] = logits[j] != logits[j];
    for (std::int32_t row = kColumns; row < kTile; row += kColumns)
      for (std::int32_t j = 0; j < kColumns; ++j) {
        const float l = logits[row + j];
        best[j] = l > best[j] ? l : best[j];
        nan[j] |= l != l;
      }
    for (std::int32_t half = kColumns / 2; half > 0; half /= 2)
      for (std::int32_t j = 0; j < half; ++j) {
        best[j] = best[j + half] > best[j] ? best[j + half] : best[j];
        nan[j] |= nan[j + half];
      }
    return nan[0] ? std::numeric_limits<float>::quiet_NaN() : best[0];
  }

  static void stats(const float* logits, std::int32_t tiles, double inv_t, TileStats* out) {
    const float scale = static_cast<float>(inv_t * kLog2E);
    for (std::int32_t t = 0; t < tiles; ++t, logits += kTile) {
      const float top = maximum(logits);
      out[t] = tile_unit(top, scale);
      if (top == -std::numeric_limits<float>::infinity()) continue;
      const float rest = out[t].rest;
      float sums[kColumns] = {};
      for (std::int32_t row = 0; row < kTile; row += kColumns)
        for (std::int32_t j = 0; j < kColumns; ++j) sums[j] += exp2((logits[row + j] - top) * scale + rest);
      out[t].sum = halve(sums);
    }
  }

  static double fill(const float* logits, const Exponent& e, float* weights) {
    float sums[kColumns] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      for (std::int32_t j = 0; j < kColumns; ++j) {
        const float l = logits[row + j];
        const float w = exp2((l - e.shift) * e.scale - e.offset);
        sums[j] += weights[row + j] = l < e.min_logit ? 0.0f : w;
      }
    return halve(sums);
  }

  static double subtract(float* weights, const float* less, float keep, float take) {
    float sums[kColumns] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      for (std::int32_t j = 0; j < kColumns; ++j) {
        const float w = keep * weights[row + j] - take * less[row + j];
        sums[j] += weights[row + j] = w > 0.0f ? w : 0.0f;
      }
    return halve(sums);
  }

  static double difference(const float* logits, const Exponent& e, const float* less, const Exponent& f,
                           float keep, float take) {
    float w[kTile], other[kTile];
    fill(logits, e, w);
    fill(less, f, other);
    return subtract(w, other, keep, take);
  }

  static double cross(const float* target, const Exponent& e, const float* draft, const Exponent& f,
                      float keep, float take, float* out) {
    float sums[kColumns] = {};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      for (std::int32_t j = 0; j < kColumns; ++j) {
        const float log_q = (draft[row + j] - f.shift) * f.scale - f.offset;
        const float p = exp2((target[row + j] - e.shift) * e.scale - e.offset);
        const float term = p * log_q;
        out[row + j] = keep * exp2(log_q) - take * p;
        sums[j] += p == 0.0f ? 0.0f : term;
      }
    return halve(sums);
  }

  static std::int32_t above(const float* logits, float bound, std::int32_t* places) {
    constexpr std::int32_t kGroup = 16;
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < kTile; i += kGroup) {
      std::int32_t any = 0;
      for (std::int32_t j = 0; j < kGroup; ++j) any |= logits[i + j] > bound;
      for (std::int32_t j = i; any && j < i + kGroup; ++j)
        if (logits[j] > bound) places[count++] = j;
    }
    return count;
  }
  static constexpr RowKernels table() { return {maximum, stats, fill, subtract, difference, cross, above}; }

 private:
  /// 2^y for y < 128; 0 below -126; NaN for NaN.
  static float exp2(float y) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const float bounded = y < -126.0f ? -126.0f : y;
    const float shifted = bounded + kRound;
    const float f = bounded - (shifted - kRound);
    const float p =
        kExp2[0] + f * (kExp2[1] + f * (kExp2[2] + f * (kExp2[3] + f * (kExp2[4] + f * kExp2[5]))));
    const float r =
        std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
    return y < -126.0f ? 0.0f : r;
  }
  static double halve(float* sums) {
    for (std::int32_t half = kColumns / 2; half > 0; half /= 2)
      for (std::int32_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    return static_cast<double>(sums[0]);
  }
};

}  // namespace specula::detail
