// SPDX-License-Identifier: MIT
// Gumbel-max sampling, inner loop: Philox noise of 64 tokens at once, and the bits of those that can win.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "specula/base/philox.hpp"
#include "specula/distribution/row_math.hpp"
#include "specula/simd/compiled.hpp"
#include "specula/simd/vectors.hpp"

namespace specula::detail {

/// Tokens per block: the words of sixteen Philox counters, four each.
inline constexpr std::int32_t kNoiseBlock = 64;

/// The first of a block's counters, which differ in the third word, and the Philox key.
struct NoiseCounter {
  std::array<std::uint32_t, 4> first;
  std::array<std::uint32_t, 2> key;
};

// Contract of every kernel: words[i] is word i % 4 of counter i / 4 and stands for u = (words[i] + 1/2) /
// 2^32. Returns the bits of the tokens with 1 - u <= weights[i] * bound, and a few more because of float
// rounding; no other token can have -log u < weights[i] * bound. As 1 - u >= 2^-33, no token of a block can
// win if all its weights are below 2^-33 / bound: then 0 is returned and the words are not written. Tokens
// of weight 0 may be among the bits.
inline constexpr float kMinTime = 0x1p-34f;  // half of 2^-33: margin for rounding

template <Isa isa>
struct NoiseBody {
  using V = simd::Vectors<isa>;
  using Floats = typename V::Floats;
  using Words = typename V::Words;
  using Wides = typename V::Wides;
  static constexpr int kWidth = V::kWidth, kParts = V::kParts;
  using Counters = Words[std::size_t{kParts}];  // a word of each of 16

  [[gnu::always_inline]] static inline std::uint64_t block(const NoiseCounter& at, const float* weights,
                                                           float bound, std::uint32_t* words) {
    const Floats limit = Floats{} + bound, least = Floats{} + kMinTime;
    std::uint32_t any = 0;
    SPECULA_UNROLL_LANES for (int i = 0; i < kNoiseBlock; i += kWidth) {
      Floats w;
      V::load(w, weights + i);
      any |= V::template compare<V::Order::above>(w * limit, least);
    }
    if (!any) return 0;
    Counters x0, x1, x2, x3;
    SPECULA_UNROLL_LANES for (int j = 0; j < kParts; ++j) {
      x0[j] = Words{} + at.first[0], x1[j] = Words{} + at.first[1], x3[j] = Words{} + at.first[3];
      // Lane 4 l + e has counter e * (lanes / 4) + l, so that interleaving within 128 bits orders them in the
      // end.
      SPECULA_UNROLL_LANES for (int lane = 0; lane < kWidth; ++lane) x2[j][lane] =
          static_cast<std::uint32_t>(j * kWidth + lane % 4 * (kWidth / 4) + lane / 4);
      x2[j] += at.first[2];
    }
    std::array<std::uint32_t, 2> key = at.key;
    for (int round = 0; round < 10; ++round) {
      SPECULA_UNROLL_LANES for (int j = 0; j < kParts; ++j) {
        Words high0, low0, high2, low2;
        multiply(high0, low0, x0[j], kPhiloxMultiplierX), multiply(high2, low2, x2[j], kPhiloxMultiplierZ);
        x0[j] = high2 ^ x1[j] ^ key[0], x1[j] = low2;
        x2[j] = high0 ^ x3[j] ^ key[1], x3[j] = low0;
      }
      key = {key[0] + kPhiloxWeyl0, key[1] + kPhiloxWeyl1};
    }
    std::uint64_t bits = 0;
    SPECULA_UNROLL_LANES for (int j = 0; j < kParts; ++j) {
      Words a, b, c, d, made[4];
      V::interleave(a, c, x0[j], x1[j]), V::interleave(b, d, x2[j], x3[j]);
      V::interleave_pairs(made[0], made[1], a, b), V::interleave_pairs(made[2], made[3], c, d);
      SPECULA_UNROLL_LANES for (int k = 0; k < 4; ++k) {
        const int i = 4 * kWidth * j + kWidth * k;
        V::store(words + i, made[k]);
        Floats w;
        V::load(w, weights + i);
        const Floats time = __builtin_convertvector(typename V::Ints(~made[k] >> 8), Floats) * 0x1p-24f;
        bits |= std::uint64_t{V::template compare<V::Order::at_least>(w * limit, time)} << i;
      }
    }
    return bits;
  }

 private:
  /// The halves of 64-bit products of lanes, even and odd ones apart.
  [[gnu::always_inline]] static inline void multiply(Words& high, Words& low, const Words& x,
                                                     std::uint32_t multiplier) {
    const Words m = Words{} + multiplier;
    Wides even, odd;
    V::multiply_even(even, x, m);
    V::multiply_even(odd, Words(Wides(x) >> 32), m);
    V::blend_odd(high, Words(even >> 32), Words(odd));
    V::blend_odd(low, Words(even), Words(odd << 32));
  }
};

/// Calls the kernel of the instruction set in use; all return the same bits. (There is no AVX-512 kernel: it
/// would be no faster.)
inline std::uint64_t noise_block(const NoiseCounter& at, const float* weights, float bound,
                                 std::uint32_t* words) {
#if SPECULA_X86
  if (isa() == Isa::avx2 || isa() == Isa::avx512)
    return simd::compiled<Isa::avx2, &NoiseBody<Isa::avx2>::block>()(at, weights, bound, words);
#endif
  return simd::compiled<Isa::portable, &NoiseBody<Isa::portable>::block>()(at, weights, bound, words);
}

}  // namespace specula::detail
