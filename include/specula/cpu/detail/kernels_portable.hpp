// SPDX-License-Identifier: MIT
// The panel product in Eigen's packets, the vectors of the compiler's target: machines without AVX2, and
// double precision.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "specula/base/half.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/simd/vectors.hpp"

namespace specula::cpu::detail::portable {

namespace packets = ::Eigen::internal;

template <class Real>
struct Tiles {
  using Packet = typename packets::packet_traits<Real>::type;  // Real itself where Eigen knows no vectors
  static constexpr int kSize = packets::unpacket_traits<Packet>::size;
  static constexpr int kRegisters = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS;
  /// Packets of a strip, and of all sums of a register block: weights and an input take the other registers.
  static constexpr int kParts = std::min(4, kPanel / kSize);
  static constexpr int kSums = std::max(kParts, kRegisters * 3 / 4);
  static constexpr std::int32_t kLanes = kParts * kSize, kColumns = std::min(8, kSums / kParts);
  static constexpr int strips(int columns) {
    const int most = std::min(8, kSums / (kParts * columns));
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(most)));
  }

  template <int S, int N>
  static void run(Bf16Panels a, std::int32_t depth, Columns<Real> io, bool accumulate) {
    Packet sum[S][kParts][N];
    load(sum, io, accumulate);
    // The last of an odd number of columns apart: with a branch for it in the loop, g++ spills the sums.
    for (std::ptrdiff_t k = 0; k + 1 < depth; k += 2) {
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
        const std::uint32_t* pairs = a.w + k / 2 * kPanel + strip(a.panel, s);
        step(sum[s], io.x + k, io.ldx, [=](int r) { return weights<false>(pairs + r); });
        step(sum[s], io.x + k + 1, io.ldx, [=](int r) { return weights<true>(pairs + r); });
      }
    }
    if (const std::ptrdiff_t k = depth - 1; depth % 2 != 0) {
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
        const std::uint32_t* pairs = a.w + k / 2 * kPanel + strip(a.panel, s);
        step(sum[s], io.x + k, io.ldx, [=](int r) { return weights<false>(pairs + r); });
      }
    }
    store(sum, io);
  }

  template <int S, int N>
  static void run(RealPanels<Real> a, std::int32_t depth, Columns<Real> io, bool accumulate) {
    Packet sum[S][kParts][N];
    load(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; ++k) {
      SPECULA_UNROLL_LANES for (int s = 0; s < S; ++s) {
        const Real* w = a.w + k * a.column + strip(a.panel, s);
        step(sum[s], io.x + k, io.ldx, [=](int r) {
          if constexpr (kSums + kParts >= kRegisters)
            __asm__ volatile("" ::: "memory");  // else clang spills sums for them
          return packets::ploadu<Packet>(w + r);
        });
      }
    }
    store(sum, io);
  }

  /// `count` columns of a panel as Real.
  static void expand(Bf16Panels a, std::int32_t count, Real* out) {
    for (std::int32_t k = 0; k < count; k += 2, a.w += kPanel, out += 2 * kPanel)
      for (int r = 0; r < kPanel; ++r) {
        out[r] = bf16_half<Real>(a.w[r], false);
        out[kPanel + r] = bf16_half<Real>(a.w[r], true);
      }
  }
  static void expand(HalfPanels a, std::int32_t count, Real* out) {
    float some[4];
    for (std::int32_t i = 0; i < count * kPanel; i += 4) {
      specula::detail::four_halves_to_floats(a.w + i, some);
      for (int r = 0; r < 4; ++r) out[i + r] = static_cast<Real>(some[r]);
    }
  }

 private:
  /// Where strip s of a column begins.
  static constexpr std::ptrdiff_t strip(std::ptrdiff_t panel, int s) {
    return s * kLanes / kPanel * panel + s * kLanes % kPanel;
  }

  /// The even or the odd column of pairs of bfloat16, converted.
  template <bool odd>
  [[gnu::always_inline]] static inline Packet weights(const std::uint32_t* pairs) {
    Packet w;
    if constexpr (std::is_same_v<Real, float>) {
      typedef std::uint32_t Pairs __attribute__((vector_size(4 * kSize)));
      Pairs bits;
      std::memcpy(&bits, pairs, sizeof(bits));
      bits = odd ? bits & 0xffff0000u : bits << 16;
      std::memcpy(&w, &bits, sizeof(w));
    } else {
      Real converted[kSize];
      SPECULA_UNROLL_LANES for (int r = 0; r < kSize; ++r) converted[r] = bf16_half<Real>(pairs[r], odd);
      std::memcpy(&w, converted, sizeof(w));
    }
    return w;
  }

  /// sum += a * b, fused where the target is known to have that. Eigen's packets are so by themselves; a
  /// scalar must not be left to the compiler, which may fuse it in one register block and not in another.
  [[gnu::always_inline]] static inline void multiply_add(Packet& sum, const Packet& a, const Packet& b) {
#if defined(__FMA__) || defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
    if constexpr (kSize == 1)
      sum = std::fma(a, b, sum);
    else
#endif
      sum = packets::pmadd(a, b, sum);
  }

  /// sum[p][c] += weights_at(p * kSize) * x[c * ldx]
  template <int N, class Weights>
  [[gnu::always_inline]] static inline void step(Packet (&sum)[kParts][N], const Real* x, std::ptrdiff_t ldx,
                                                 Weights weights_at) {
    SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) {
      const Packet same = packets::pset1<Packet>(x[c * ldx]);
      SPECULA_UNROLL_LANES for (int p = 0; p < kParts; ++p)
          multiply_add(sum[p][c], weights_at(p * kSize), same);
    }
  }

  /// Calls visit(sum, its place in io.y) for each packet.
  template <class Sums, class Visit>
  [[gnu::always_inline]] static inline void each(Sums& sum, const Columns<Real>& io, Visit visit) {
    SPECULA_UNROLL_LANES for (int s = 0; s < static_cast<int>(std::extent_v<Sums, 0>); ++s) {
      SPECULA_UNROLL_LANES for (int p = 0; p < kParts; ++p) {
        SPECULA_UNROLL_LANES for (int c = 0; c < static_cast<int>(std::extent_v<Sums, 2>); ++c)
            visit(sum[s][p][c], io.y + c * io.ldy + s * kLanes + p * kSize);
      }
    }
  }
  template <class Sums>
  [[gnu::always_inline]] static inline void load(Sums& sum, const Columns<Real>& io, bool accumulate) {
    each(sum, io, [&](Packet& part, const Real* y) {
      part = accumulate ? packets::ploadu<Packet>(y) : packets::pset1<Packet>(Real(0));
    });
  }
  template <class Sums>
  [[gnu::always_inline]] static inline void store(const Sums& sum, const Columns<Real>& io) {
    each(sum, io, [](const Packet& part, Real* y) { packets::pstoreu(y, part); });
  }
};

}  // namespace specula::cpu::detail::portable
