// The panel product in plain C++: machines without AVX2, and double precision.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "specula/cpu/detail/panel.hpp"
#include "specula/simd/vectors.hpp"

namespace specula::cpu::detail::portable {

/// Vectors of 4 by the vector extension of GCC and Clang, on every processor.
template <class Real>
struct Four {
  typedef Real type __attribute__((vector_size(4 * sizeof(Real))));
};

/// sum += a * b. A fused operation where the target is known to have it, so that the compiler cannot fuse it
/// in one register block and not in another. By reference: the ABI of vectors passed by value depends on the
/// instruction set.
template <class Vector, class Real>
[[gnu::always_inline]] inline void multiply_add(Vector& sum, const Vector& a, Real b) {
#if defined(__FMA__) || defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
  SPECULA_UNROLL_LANES for (int i = 0; i < 4; ++i) sum[i] = std::fma(a[i], b, sum[i]);
#else
  sum += a * b;
#endif
}

struct Tiles {
  static constexpr std::int32_t kLanes = 4, kColumns = 3;
  static constexpr int strips(int) { return 1; }

  template <int N, class Vector, class Real>
  [[gnu::always_inline]] static inline void load(Vector (&sum)[N], const Columns<Real>& io, bool accumulate) {
    SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) {
      sum[c] = Vector{};
      if (accumulate) std::memcpy(&sum[c], io.y + c * io.ldy, sizeof(Vector));
    }
  }
  template <int N, class Vector, class Real>
  [[gnu::always_inline]] static inline void store(const Vector (&sum)[N], const Columns<Real>& io) {
    SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) std::memcpy(io.y + c * io.ldy, &sum[c], sizeof(Vector));
  }
  template <int N, class Vector, class Real>
  [[gnu::always_inline]] static inline void step(Vector (&sum)[N], const Vector& w, const Real* x,
                                                 std::ptrdiff_t ldx) {
    SPECULA_UNROLL_LANES for (int c = 0; c < N; ++c) multiply_add(sum[c], w, x[c * ldx]);
  }

  template <int S, int N, class Real>
  static void run(Bf16Panels a, std::int32_t depth, Columns<Real> io, bool accumulate) {
    typename Four<Real>::type sum[N], low{}, high{};
    load(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; k += 2) {
      const std::uint32_t* pair = a.w + k * (kPanel / 2);
      SPECULA_UNROLL_LANES for (int r = 0; r < kLanes; ++r) {
        low[r] = static_cast<Real>(std::bit_cast<float>(pair[r] << 16));
        high[r] = static_cast<Real>(std::bit_cast<float>(pair[r] & 0xffff0000u));
      }
      step(sum, low, io.x + k, io.ldx);
      if (k + 1 < depth) step(sum, high, io.x + k + 1, io.ldx);
    }
    store(sum, io);
  }

  template <int S, int N, class Real>
  static void run(RealPanels<Real> a, std::int32_t depth, Columns<Real> io, bool accumulate) {
    typename Four<Real>::type sum[N], w;
    load(sum, io, accumulate);
    for (std::ptrdiff_t k = 0; k < depth; ++k) {
      std::memcpy(&w, a.w + k * a.column, sizeof(w));
      step(sum, w, io.x + k, io.ldx);
    }
    store(sum, io);
  }
};

}  // namespace specula::cpu::detail::portable
