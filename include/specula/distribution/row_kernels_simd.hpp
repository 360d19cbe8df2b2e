// SPDX-License-Identifier: MIT
// Tile kernels over SIMD vectors, written once for every instruction set. With fused multiply-add all of them
// do the same operations in the same order, and so give the same bits. Range and error: row_kernels.hpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "specula/distribution/row_kernels.hpp"
#include "specula/simd/compiled.hpp"
#include "specula/simd/exp.hpp"

namespace specula::detail {

template <Isa isa>
struct RowBodies {
  using V = simd::Vectors<isa>;
  using Floats = typename V::Floats;
  static constexpr std::int32_t kWidth = V::kWidth;
  static constexpr int kSums = kColumns / kWidth;  // registers that hold a tile's columns
  using Sums = Floats[std::size_t{kSums}];

  [[gnu::always_inline]] static inline float maximum(const float* logits) {
    constexpr int kBest = 64 / kWidth;  // registers at once
    // A comparison returns its second operand where either is NaN, so NaN needs a test of its own.
    Floats best[std::size_t{kBest}], l[std::size_t{kBest}];
    typename V::Nans nans{};
    SPECULA_UNROLL_LANES for (int j = 0; j < kBest; ++j) V::load(best[j], logits + j * kWidth);
    SPECULA_UNROLL_LANES for (int j = 0; j < kBest; j += 2) V::find_nans(nans, best[j], best[j + 1]);
    for (std::int32_t i = 64; i < kTile; i += 64) {
      SPECULA_UNROLL_LANES for (int j = 0; j < kBest; ++j) V::load(l[j], logits + i + j * kWidth);
      SPECULA_UNROLL_LANES for (int j = 0; j < kBest; j += 2) V::find_nans(nans, l[j], l[j + 1]);
      SPECULA_UNROLL_LANES for (int j = 0; j < kBest; ++j) V::raise(best[j], l[j]);
    }
    SPECULA_UNROLL_LANES for (int half = kBest / 2; half > 0; half /= 2) {
      SPECULA_UNROLL_LANES for (int j = 0; j < half; ++j) V::raise(best[j], best[j + half]);
    }
    const float top = V::largest(best[0]);  // g++ 12 would pass the register through memory after the branch
    return V::any(nans) ? std::numeric_limits<float>::quiet_NaN() : top;
  }

  [[gnu::always_inline]] static inline void stats(const float* logits, std::int32_t tiles, double inv_t,
                                                  TileStats* out) {
    const float factor = static_cast<float>(inv_t * kLog2E);
    float top = maximum(logits);
    for (std::int32_t t = 0; t < tiles; ++t, logits += kTile) {
      // Also computes the maximum of the next tile: its loads overlap with this tile's arithmetic.
      const float* next = t + 1 < tiles ? logits + kTile : logits;
      out[t] = tile_unit(top, factor);
      // Where the unit is exact in a float, so is the fused product, which saves the subtraction.
      const bool large = !V::kFused || std::abs(out[t].unit) >= 0x1p22;
      const Lanes lanes{(large ? top : 0) - Floats{}, factor - Floats{},
                        (large ? -out[t].rest : static_cast<float>(out[t].unit)) - Floats{}, Floats{}};
      Sums sums;
      const float ahead =
          large ? columns<true>(lanes, logits, next, sums) : columns<false>(lanes, logits, next, sums);
      out[t].sum = top == -std::numeric_limits<float>::infinity() ? empty(logits) : halve(sums);
      top = ahead;
    }
  }

  [[gnu::always_inline]] static inline double fill(const float* logits, const Exponent& e, float* weights) {
    const Lanes lanes(e);
    Sums sums{};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      SPECULA_UNROLL_LANES for (std::int32_t j = 0; j < kSums; ++j) {
        Floats w;
        weight(w, lanes, logits + row + kWidth * j);
        V::store(weights + row + kWidth * j, w);
        sums[j] += w;
      }
    return halve(sums);
  }

  [[gnu::always_inline]] static inline double subtract(float* weights, const float* less, float keep,
                                                       float take) {
    const Floats a = keep - Floats{}, b = take - Floats{};
    Sums sums{};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      SPECULA_UNROLL_LANES for (std::int32_t j = 0; j < kSums; ++j) {
        const std::int32_t i = row + kWidth * j;
        Floats w, other;
        V::load(w, weights + i), V::load(other, less + i);
        subtract_part(w, a, b, other);
        V::store(weights + i, w);
        sums[j] += w;
      }
    return halve(sums);
  }

  [[gnu::always_inline]] static inline double difference(const float* logits, const Exponent& e,
                                                         const float* less, const Exponent& f, float keep,
                                                         float take) {
    const Lanes lanes(e), others(f);
    const Floats a = keep - Floats{}, b = take - Floats{};
    Sums sums{};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      SPECULA_UNROLL_LANES for (std::int32_t j = 0; j < kSums; ++j) {
        const std::int32_t i = row + kWidth * j;
        Floats w, other;
        weight(w, lanes, logits + i), weight(other, others, less + i);
        subtract_part(w, a, b, other);
        sums[j] += w;
      }
    return halve(sums);
  }

  [[gnu::always_inline]] static inline double cross(const float* target, const Exponent& e,
                                                    const float* draft, const Exponent& f, float keep,
                                                    float take, float* out) {
    const Lanes lanes(e), others(f);
    const Floats a = keep - Floats{}, b = take - Floats{};
    Sums sums{};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      SPECULA_UNROLL_LANES for (std::int32_t j = 0; j < kSums; ++j) {
        const std::int32_t i = row + kWidth * j;
        Floats p, log_q, l;
        V::load(l, draft + i), power(log_q, others, l);
        V::load(l, target + i), power(p, lanes, l);
        simd::exp2<isa>(p);
        Floats q = log_q;
        simd::exp2<isa>(q);
        V::multiply_subtract(q, q, a, b * p);
        V::store(out + i, q);
        const Floats term = p * log_q;
        sums[j] += p == 0.0f ? Floats{} : term;
      }
    return halve(sums);
  }

  [[gnu::always_inline]] static inline double sum(const float* weights) {
    Sums sums{};
    for (std::int32_t row = 0; row < kTile; row += kColumns)
      SPECULA_UNROLL_LANES for (std::int32_t j = 0; j < kSums; ++j) {
        Floats w;
        V::load(w, weights + row + kWidth * j);
        sums[j] += w;
      }
    return halve(sums);
  }

  [[gnu::always_inline]] static inline void widen_half(const std::uint16_t* halves, float* logits) {
    for (std::int32_t i = 0; i < kTile; i += kWidth) {
      Floats l;
      V::load_half(l, halves + i), V::store(logits + i, l);
    }
  }
  [[gnu::always_inline]] static inline void widen_bfloat16(const std::uint16_t* upper, float* logits) {
    for (std::int32_t i = 0; i < kTile; i += kWidth) {
      Floats l;
      V::load_bfloat16(l, upper + i), V::store(logits + i, l);
    }
  }

  [[gnu::always_inline]] static inline std::int32_t above(const float* logits, float bound,
                                                          std::int32_t* places) {
    const Floats limit = bound - Floats{};
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < kTile; i += 32) {
      std::uint32_t mask = 0;
      SPECULA_UNROLL_LANES for (std::int32_t j = 0; j < 32; j += kWidth) {
        Floats l;
        V::load(l, logits + i + j);
        mask |= V::template compare<V::Order::above>(l, limit) << j;
      }
      for (; mask != 0; mask &= mask - 1) places[count++] = i + std::countr_zero(mask);
    }
    return count;
  }

 private:
  struct Lanes {
    Floats shift, scale, offset, min_logit;
    [[gnu::always_inline]] inline Lanes(const Floats& s, const Floats& f, const Floats& o, const Floats& m)
        : shift(s), scale(f), offset(o), min_logit(m) {}
    [[gnu::always_inline]] inline explicit Lanes(const Exponent& e)
        : shift(e.shift - Floats{}),
          scale(e.scale - Floats{}),
          offset(e.offset - Floats{}),
          min_logit(e.min_logit - Floats{}) {}
  };
  /// The sum of a tile whose maximum is -infinity: 0, or NaN if the tile holds one, which raise() does not
  /// detect.
  [[gnu::always_inline]] static inline double empty(const float* logits) {
    return std::isnan(maximum(logits)) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  }
  /// log2 of a weight, ignoring truncation.
  [[gnu::always_inline]] static inline void power(Floats& out, const Lanes& lanes, const Floats& l) {
    V::multiply_subtract(out, l - lanes.shift, lanes.scale, lanes.offset);
  }
  /// 2^exponent relative to the tile's unit.
  template <bool large>
  [[gnu::always_inline]] static inline void above_unit(Floats& out, const Lanes& lanes, const float* logits) {
    Floats l;
    V::load(l, logits);
    if constexpr (large)
      power(out, lanes, l);
    else
      V::multiply_subtract(out, l, lanes.scale, lanes.offset);
    simd::exp2<isa>(out);
  }
  /// Sums of a tile's columns; returns the maximum of `next`.
  template <bool large>
  [[gnu::always_inline]] static inline float columns(const Lanes& lanes, const float* logits,
                                                     const float* next, Sums& sums) {
    Floats even = Floats{} - std::numeric_limits<float>::infinity(), odd = even;
    for (std::int32_t j = 0; j < kSums; ++j) {
      const std::int32_t column = kWidth * j;
      Floats sum, w;
      const float* ahead = next + 4 * column;  // in order, for the hardware prefetcher
      V::load(w, ahead), V::raise(even, w);
      V::load(w, ahead + kWidth), V::raise(odd, w);
      V::load(w, ahead + 2 * kWidth), V::raise(even, w);
      V::load(w, ahead + 3 * kWidth), V::raise(odd, w);
      // The tile after next; beyond the row a prefetch does no harm.
      for (int line = 0; line < 4 * kWidth; line += 16) __builtin_prefetch(ahead + kTile + line);
      above_unit<large>(sum, lanes, logits + column);
      SPECULA_UNROLL_LANES for (std::int32_t row = kColumns; row < kTile; row += kColumns)
          above_unit<large>(w, lanes, logits + row + column),
          sum += w;
      sums[j] = sum;
    }
    V::raise(even, odd);
    return V::largest(even);
  }
  [[gnu::always_inline]] static inline void weight(Floats& out, const Lanes& lanes, const float* logits) {
    Floats l;
    V::load(l, logits);
    power(out, lanes, l);
    simd::exp2_where<isa, true>(out, l, lanes.min_logit);
  }
  /// w = max(0, keep w - take less)
  [[gnu::always_inline]] static inline void subtract_part(Floats& w, const Floats& keep, const Floats& take,
                                                          const Floats& less) {
    V::multiply_subtract(w, w, keep, take * less);
    Floats none{};
    V::raise(none, w);  // in this order: NaN stays
    w = none;
  }
  /// The sum of the columns: halves, 64, 32, ..., 1.
  [[gnu::always_inline]] static inline double halve(Sums& sums) {
    SPECULA_UNROLL_LANES for (int half = kSums / 2; half >= V::kParts; half /= 2) {
      SPECULA_UNROLL_LANES for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    typename V::Block block;
    SPECULA_UNROLL_LANES for (int part = 0; part < V::kParts; ++part) block[part] = sums[part];
    return static_cast<double>(V::sum(block));
  }
};

/// The kernels for `isa`.
template <Isa isa>
constexpr RowKernels row_kernels() {
  using B = RowBodies<isa>;
  return {simd::compiled<isa, &B::maximum>(),
          simd::compiled<isa, &B::stats>(),
          simd::compiled<isa, &B::fill>(),
          simd::compiled<isa, &B::subtract>(),
          simd::compiled<isa, &B::difference>(),
          simd::compiled<isa, &B::cross>(),
          simd::compiled<isa, &B::sum>(),
          simd::compiled<isa, &B::widen_half>(),
          simd::compiled<isa, &B::widen_bfloat16>(),
          simd::compiled<isa, &B::above>()};
}

}  // namespace specula::detail
