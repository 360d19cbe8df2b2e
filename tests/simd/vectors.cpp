// SPDX-License-Identifier: MIT
// labels: vectorised
// Vectors of 16 lanes on every instruction set.
#include <specula/simd/vectors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <specula/simd/compiled.hpp>

#include "random.hpp"

using namespace specula;
using namespace specula::simd;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Results {
  std::array<float, 16> fused, subtracted, raised;
  float sum, largest;
  std::uint32_t above, at_least;
  bool nan;
  std::array<std::uint32_t, 16> products, low, high, low_pairs, high_pairs, blended;
};

/// Every operation over 16 lanes, register by register.
template <Isa isa>
struct Body {
  using V = Vectors<isa>;
  [[gnu::always_inline]] static inline void run(const float* a, const float* b, const float* c,
                                                Results& out) {
    out.above = out.at_least = 0;
    typename V::Floats block[V::kParts];
    typename V::Nans nans{};
    for (int p = 0; p < V::kParts; ++p) {
      const int i = p * V::kWidth;
      typename V::Floats x, y, z, to;
      V::load(x, a + i), V::load(y, b + i), V::load(z, c + i);
      V::multiply_add(to, x, y, z), V::store(out.fused.data() + i, to);
      V::multiply_subtract(to, x, y, z), V::store(out.subtracted.data() + i, to);
      to = x, V::raise(to, y), V::store(out.raised.data() + i, to);
      out.above |= V::template compare<V::Order::above>(x, y) << i;
      out.at_least |= V::template compare<V::Order::at_least>(x, y) << i;
      V::find_nans(nans, x, y);
      block[p] = z;
      typename V::Words u, v, low, high;
      V::load(u, a + i), V::load(v, b + i);
      typename V::Wides wide;
      V::multiply_even(wide, u, v), V::store(out.products.data() + i, (typename V::Words)wide);
      V::interleave(low, high, u, v), V::store(out.low.data() + i, low), V::store(out.high.data() + i, high);
      V::interleave_pairs(low, high, u, v);
      V::store(out.low_pairs.data() + i, low), V::store(out.high_pairs.data() + i, high);
      V::blend_odd(low, u, v), V::store(out.blended.data() + i, low);
    }
    out.sum = V::sum(block);
    typename V::Floats most = block[0];
    for (int p = 1; p < V::kParts; ++p) V::raise(most, block[p]);
    out.largest = V::largest(most);
    out.nan = V::any(nans);
  }
};

template <Isa isa>
void check() {
  using V = Vectors<isa>;
  specula_test::Random random(3);
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (int round = 0; round < 200; ++round) {
    float a[16], b[16], c[16];
    for (int i = 0; i < 16; ++i) {
      a[i] = static_cast<float>(random.between(-3, 3)), c[i] = static_cast<float>(random.between(-9, 9));
      b[i] = random.bernoulli(0.2) ? a[i] : static_cast<float>(random.between(-3, 3));
      if (random.bernoulli(0.03)) a[i] = kNan;
      if (random.bernoulli(0.03)) b[i] = kNan;
    }
    Results got;
    compiled<isa, &Body<isa>::run>()(a, b, c, got);
    std::array<float, 16> tree;
    float largest = c[0];
    int wrong = 0;
    bool nan = false;
    for (int i = 0; i < 16; ++i) {
      nan |= std::isnan(a[i]) || std::isnan(b[i]);
      const auto n = static_cast<std::size_t>(i);
      const float fused = std::fma(a[i], b[i], c[i]), subtracted = std::fma(a[i], b[i], -c[i]);
      const auto differs = [](float x, float once, float y) { return x != once && (V::kFused || x != y); };
      if (!std::isnan(fused))
        wrong += differs(got.fused[n], fused, a[i] * b[i] + c[i]) ||
                 differs(got.subtracted[n], subtracted, a[i] * b[i] - c[i]);
      if (!std::isnan(b[i])) wrong += got.raised[n] != (a[i] > b[i] ? a[i] : b[i]);
      wrong += (got.above >> i & 1) != (a[i] > b[i]) || (got.at_least >> i & 1) != (a[i] >= b[i]);
      const std::uint64_t product = std::uint64_t{bits(a[i & ~1])} * bits(b[i & ~1]);
      wrong += got.products[n] != static_cast<std::uint32_t>(i % 2 ? product >> 32 : product);
      const int four = i / 4 * 4, k = i % 4;
      wrong += got.low[n] != bits((k % 2 ? b : a)[four + k / 2]);
      wrong += got.high[n] != bits((k % 2 ? b : a)[four + 2 + k / 2]);
      wrong += got.low_pairs[n] != bits((k / 2 ? b : a)[four + k % 2]);
      wrong += got.high_pairs[n] != bits((k / 2 ? b : a)[four + 2 + k % 2]);
      wrong += got.blended[n] != bits((i % 2 ? b : a)[i]);
      tree[n] = c[i];
      largest = std::max(largest, c[i]);
    }
    for (std::size_t half = 8; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) tree[i] += tree[i + half];
    CHECK(wrong == 0);
    CHECK(got.nan == nan);
    CHECK(got.sum == tree[0]);
    CHECK(got.largest == largest);
  }
}

}  // namespace

TEST_CASE("vector operations equal scalar operations per lane, on every instruction set") {
  check<Isa::portable>();
#if SPECULA_X86
  if (supported(Isa::avx2)) check<Isa::avx2>();
  if (supported(Isa::avx512)) check<Isa::avx512>();
#endif
}
