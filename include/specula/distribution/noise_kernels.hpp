// Philox noise of 64 tokens at once, and which of them can win: the inner loop of Gumbel-max sampling.
#pragma once

#include <array>
#include <cstdint>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#endif

#include "specula/distribution/philox.hpp"
#include "specula/distribution/row_math.hpp"

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
inline constexpr float kLeastTime = 0x1p-34f;  // half of 2^-33: margin for rounding

struct NoisePortable {
  static std::uint64_t block(const NoiseCounter& at, const float* weights, float bound,
                             std::uint32_t* words) {
    int any = 0;
    for (std::size_t i = 0; i < kNoiseBlock; ++i) any |= weights[i] * bound > kLeastTime;
    if (!any) return 0;
    constexpr std::size_t n = kNoiseBlock / 4;
    // by word, not by counter, so that compilers vectorise the rounds
    std::array<std::uint32_t, n> x0, x1, x2, x3;
    x0.fill(at.first[0]), x1.fill(at.first[1]), x3.fill(at.first[3]);
    for (std::size_t c = 0; c < n; ++c) x2[c] = at.first[2] + static_cast<std::uint32_t>(c);
    auto key = at.key;
    for (int round = 0; round < 10; ++round) {
      for (std::size_t c = 0; c < n; ++c) {
        const std::uint64_t a = std::uint64_t{kPhiloxMultiplier[0]} * x0[c],
                            b = std::uint64_t{kPhiloxMultiplier[1]} * x2[c];
        x0[c] = static_cast<std::uint32_t>(b >> 32) ^ x1[c] ^ key[0], x1[c] = static_cast<std::uint32_t>(b);
        x2[c] = static_cast<std::uint32_t>(a >> 32) ^ x3[c] ^ key[1], x3[c] = static_cast<std::uint32_t>(a);
      }
      key = {key[0] + kPhiloxWeyl[0], key[1] + kPhiloxWeyl[1]};
    }
    for (std::size_t c = 0; c < n; ++c, words += 4)
      words[0] = x0[c], words[1] = x1[c], words[2] = x2[c], words[3] = x3[c];
    words -= kNoiseBlock;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < kNoiseBlock; ++i)
      bits |= std::uint64_t{static_cast<float>(static_cast<std::int32_t>(~words[i] >> 8)) * 0x1p-24f <=
                            weights[i] * bound}
              << i;
    return bits;
  }
};

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

// AVX2 multiplies 32-bit integers to 64 bits in even lanes only, so odd lanes are shifted there and back.
// Counters are ordered such that unpacking within 128-bit lanes is enough at the end.

#define SPECULA_AVX2 __attribute__((target("avx2")))

struct NoiseAvx2 {
  SPECULA_AVX2 static std::uint64_t block(const NoiseCounter& at, const float* weights, float bound,
                                          std::uint32_t* words) {
    const __m256 limit = _mm256_set1_ps(bound);
    __m256 any = _mm256_setzero_ps();
    for (int i = 0; i < kNoiseBlock; i += 8)
      any = _mm256_or_ps(any, _mm256_cmp_ps(_mm256_mul_ps(_mm256_loadu_ps(weights + i), limit),
                                            _mm256_set1_ps(kLeastTime), _CMP_GT_OQ));
    if (_mm256_movemask_ps(any) == 0) return 0;
    __m256i x0[2], x1[2], x2[2], x3[2];
    for (int j = 0; j < 2; ++j) {
      x0[j] = all(at.first[0]), x1[j] = all(at.first[1]), x3[j] = all(at.first[3]);
      x2[j] = _mm256_add_epi32(all(at.first[2] + 8 * static_cast<std::uint32_t>(j)),
                               _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    }
    std::array<std::uint32_t, 2> key = at.key;
    for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        const Product a = multiply(x0[j], all(kPhiloxMultiplier[0])),
                      b = multiply(x2[j], all(kPhiloxMultiplier[1]));
        x0[j] = _mm256_xor_si256(_mm256_xor_si256(b.high, x1[j]), all(key[0])), x1[j] = b.low;
        x2[j] = _mm256_xor_si256(_mm256_xor_si256(a.high, x3[j]), all(key[1])), x3[j] = a.low;
      }
      key = {key[0] + kPhiloxWeyl[0], key[1] + kPhiloxWeyl[1]};
    }
    std::uint64_t bits = 0;
    for (int j = 0; j < 2; ++j) {
      const __m256i a = _mm256_unpacklo_epi32(x0[j], x1[j]), b = _mm256_unpacklo_epi32(x2[j], x3[j]);
      const __m256i c = _mm256_unpackhi_epi32(x0[j], x1[j]), d = _mm256_unpackhi_epi32(x2[j], x3[j]);
      const __m256i made[4] = {_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b),
                               _mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)};
      for (int k = 0; k < 4; ++k) {
        const int i = 32 * j + 8 * k;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i), made[k]);
        const __m256i rest = _mm256_srli_epi32(_mm256_xor_si256(made[k], _mm256_set1_epi32(-1)), 8);
        const __m256 least = _mm256_mul_ps(_mm256_cvtepi32_ps(rest), _mm256_set1_ps(0x1p-24f));
        const __m256 most = _mm256_mul_ps(_mm256_loadu_ps(weights + i), limit);
        bits |=
            std::uint64_t{static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(least, most, _CMP_LE_OQ)))}
            << i;
      }
    }
    return bits;
  }

 private:
  struct Product {
    __m256i high, low;
  };
  SPECULA_AVX2 __attribute__((always_inline)) static Product multiply(__m256i x, __m256i m) {
    const __m256i even = _mm256_mul_epu32(x, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), m);
    return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA),
            _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA)};
  }
  SPECULA_AVX2 __attribute__((always_inline)) static __m256i all(std::uint32_t x) {
    return _mm256_set1_epi32(static_cast<int>(x));
  }
};

#undef SPECULA_AVX2
#endif

/// Calls the kernel of the instruction set in use; all return the same bits. (There is none for AVX-512: it
/// gains only a sixth on Zen 4.)
inline std::uint64_t noise_block(const NoiseCounter& at, const float* weights, float bound,
                                 std::uint32_t* words) {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
  if (isa() == Isa::avx2 || isa() == Isa::avx512) return NoiseAvx2::block(at, weights, bound, words);
#endif
  return NoisePortable::block(at, weights, bound, words);
}

}  // namespace specula::detail
