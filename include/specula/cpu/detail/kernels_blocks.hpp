// SPDX-License-Identifier: MIT
// The product of weights in blocks with rounded inputs: on AVX2, on AVX2 with AVX-VNNI, and on AVX-512 with
// its VNNI, all with the same bits; and in the vector extensions of GCC and Clang, without fused products.
#pragma once

#include "specula/simd/compiled.hpp"
#include "specula/simd/vectors.hpp"

#if SPECULA_X86
#include <immintrin.h>
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "specula/cpu/detail/block_layout.hpp"
#include "specula/base/half.hpp"
#include "specula/cpu/detail/panel.hpp"
#include "specula/cpu/detail/rounded_inputs.hpp"

namespace specula::cpu::detail {

/// Before a loop that shall stay one: its body is long, and there are many kernels to compile.
#define SPECULA_ROLLED _Pragma(SPECULA_ROLLED_)
#if defined(__clang__)
#define SPECULA_ROLLED_ "clang loop unroll(disable)"
#else
#define SPECULA_ROLLED_ "GCC unroll 1"
#endif

namespace blocks_portable {

#define SPECULA_BLOCKS_TARGET maybe_unused
#define SPECULA_BLOCKS_OP [[gnu::always_inline]] static inline

/// Four strips of 4 rows in a panel.
struct Ops {
  using Vectors = simd::Vectors<Isa::portable>;
  using Ints = Vectors::Ints;
  using Floats = Vectors::Floats;
  typedef std::int16_t Shorts __attribute__((vector_size(16)));
  typedef std::uint16_t Halves __attribute__((vector_size(16)));
  struct Used {};
  static constexpr int kLanes = 4, kStrips = 4, kTogether = 1, kSums = 4;
  static constexpr bool kBytes = false, kBytesApart = false;
  static constexpr int panels(int) { return 1; }
  static constexpr bool apart(int) { return false; }

  SPECULA_BLOCKS_OP Ints load(const std::byte* at) {
    Ints out;
    std::memcpy(&out, at, sizeof out);
    return out;
  }
  SPECULA_BLOCKS_OP Ints same(const std::uint32_t* at) { return Ints{} + static_cast<std::int32_t>(*at); }
  SPECULA_BLOCKS_OP Ints same(const std::int32_t* at) { return Ints{} + *at; }
  SPECULA_BLOCKS_OP Ints same16(int value) { return Ints(Shorts{} + static_cast<std::int16_t>(value)); }
  SPECULA_BLOCKS_OP Ints no_ints() { return Ints{}; }
  SPECULA_BLOCKS_OP Ints both(Ints a, Ints b) { return a & b; }
  SPECULA_BLOCKS_OP Ints add(Ints a, Ints b) { return a + b; }
  /// a, with the bits of b under the mask.
  SPECULA_BLOCKS_OP Ints add_bits(Ints a, Ints b, Ints mask) { return a | (b & mask); }
  /// 16-bit lanes to the left, or, below 0, to the right.
  template <int k>
  SPECULA_BLOCKS_OP Ints shift(Ints a) {
    if constexpr (k > 0) return Ints(Halves(a) << k);
    if constexpr (k < 0) return Ints(Halves(a) >> -k);
    return a;
  }
  SPECULA_BLOCKS_OP Ints shift_right(Ints a, int k) { return Ints(Halves(a) >> k); }
  template <int k>
  SPECULA_BLOCKS_OP Ints shift_signed(Ints a) {
    return Ints(Shorts(a) >> k);
  }
  template <int k>
  SPECULA_BLOCKS_OP Ints shift_wide(Ints a) {
    return a << k;
  }
  SPECULA_BLOCKS_OP Ints dot(Ints sum, Ints w, Ints x) {
#if SPECULA_X86
    return sum + Ints(_mm_madd_epi16(__m128i(w), __m128i(x)));  // SSE2, which lacks a product of 32 bits
#else
    return sum + (w << 16 >> 16) * (x << 16 >> 16) + (w >> 16) * (x >> 16);
#endif
  }
  SPECULA_BLOCKS_OP Ints dot_bytes(Ints sum, Ints, Ints) { return sum; }
  SPECULA_BLOCKS_OP Ints end_bytes(Ints sum) { return sum; }

  SPECULA_BLOCKS_OP Floats zero() { return Floats{}; }
  SPECULA_BLOCKS_OP Floats load(const float* at) {
    Floats out;
    Vectors::load(out, at);
    return out;
  }
  SPECULA_BLOCKS_OP void store(float* at, Floats a) { Vectors::store(at, a); }
  SPECULA_BLOCKS_OP Floats same(const float* at) { return Floats{} + *at; }
  SPECULA_BLOCKS_OP Floats to_floats(Ints a) { return __builtin_convertvector(a, Floats); }
  SPECULA_BLOCKS_OP Floats times(Floats a, Floats b) { return a * b; }
  SPECULA_BLOCKS_OP Floats minus_times(Floats a, Floats b) { return -a * b; }
  SPECULA_BLOCKS_OP Floats fused(Floats a, Floats b, Floats c) {
    Vectors::multiply_add(c, a, b, Floats(c));
    return c;
  }
  template <class T>
  SPECULA_BLOCKS_OP Floats numbers(const std::byte* at) {
    T four[4];
    std::memcpy(four, at, sizeof four);
    return Floats{static_cast<float>(four[0]), static_cast<float>(four[1]), static_cast<float>(four[2]),
                  static_cast<float>(four[3])};
  }
  SPECULA_BLOCKS_OP Floats halves(const std::byte* at) {
    std::uint16_t four[4];
    std::memcpy(four, at, sizeof four);
    float out[4];
    specula::detail::four_halves_to_floats(four, out);
    return load(out);
  }
  SPECULA_BLOCKS_OP Floats bytes(const std::byte* at) { return numbers<std::uint8_t>(at); }
  SPECULA_BLOCKS_OP Floats signed_bytes(const std::byte* at) { return numbers<std::int8_t>(at); }
};

#include "specula/cpu/detail/kernels_blocks_body.hpp"
#undef SPECULA_BLOCKS_TARGET
#undef SPECULA_BLOCKS_OP

}  // namespace blocks_portable

#if SPECULA_X86

namespace blocks_avx2 {

#define SPECULA_BLOCKS_TARGET gnu::target("avx2,fma,f16c")
#define SPECULA_BLOCKS_OP [[SPECULA_BLOCKS_TARGET, gnu::always_inline]] static inline

/// Two strips of 8 rows in a panel.
struct Ops {
  using Ints = __m256i;
  using Floats = __m256;
  using Used = simd::WideRegisters;
  static constexpr int kLanes = 8, kStrips = 2, kTogether = 1, kSums = 4;
  static constexpr bool kBytes = true, kBytesApart = true;  // their sums have 16 bits at first
  static constexpr int panels(int) { return 1; }
  static constexpr bool apart(int) { return false; }

  SPECULA_BLOCKS_OP Ints load(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const Ints*>(at));
  }
  SPECULA_BLOCKS_OP Ints same(const std::uint32_t* at) { return _mm256_set1_epi32(static_cast<int>(*at)); }
  SPECULA_BLOCKS_OP Ints same(const std::int32_t* at) { return _mm256_set1_epi32(*at); }
  SPECULA_BLOCKS_OP Ints same16(int value) { return _mm256_set1_epi16(static_cast<short>(value)); }
  SPECULA_BLOCKS_OP Ints no_ints() { return _mm256_setzero_si256(); }
  SPECULA_BLOCKS_OP Ints both(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  SPECULA_BLOCKS_OP Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  /// a, with the bits of b under the mask.
  SPECULA_BLOCKS_OP Ints add_bits(Ints a, Ints b, Ints mask) {
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
  }
  /// 16-bit lanes to the left, or, below 0, to the right.
  template <int k>
  SPECULA_BLOCKS_OP Ints shift(Ints a) {
    if constexpr (k > 0) return _mm256_slli_epi16(a, k);
    if constexpr (k < 0) return _mm256_srli_epi16(a, -k);
    return a;
  }
  SPECULA_BLOCKS_OP Ints shift_right(Ints a, int k) { return _mm256_srl_epi16(a, _mm_cvtsi32_si128(k)); }
  template <int k>
  SPECULA_BLOCKS_OP Ints shift_signed(Ints a) {
    return _mm256_srai_epi16(a, k);
  }
  template <int k>
  SPECULA_BLOCKS_OP Ints shift_wide(Ints a) {
    return _mm256_slli_epi32(a, k);
  }
  SPECULA_BLOCKS_OP Ints dot(Ints sum, Ints w, Ints x) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
    __asm__("" : "+x"(sum));  // else g++ adds products to each other first, and spills them
    return sum;
  }
  /// At most 8 times 2 * 15 * 127, which 16 bits hold.
  SPECULA_BLOCKS_OP Ints dot_bytes(Ints sum, Ints w, Ints x) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
    __asm__("" : "+x"(sum));
    return sum;
  }
  SPECULA_BLOCKS_OP Ints end_bytes(Ints sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

  SPECULA_BLOCKS_OP Floats zero() { return _mm256_setzero_ps(); }
  SPECULA_BLOCKS_OP Floats load(const float* at) { return _mm256_loadu_ps(at); }
  SPECULA_BLOCKS_OP void store(float* at, Floats a) { _mm256_storeu_ps(at, a); }
  SPECULA_BLOCKS_OP Floats same(const float* at) { return _mm256_broadcast_ss(at); }
  SPECULA_BLOCKS_OP Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
  SPECULA_BLOCKS_OP Floats times(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  SPECULA_BLOCKS_OP Floats minus_times(Floats a, Floats b) {
    return _mm256_mul_ps(_mm256_xor_ps(a, _mm256_set1_ps(-0.0f)), b);
  }
  SPECULA_BLOCKS_OP Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  SPECULA_BLOCKS_OP Floats halves(const std::byte* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  SPECULA_BLOCKS_OP Floats bytes(const std::byte* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
  }
  SPECULA_BLOCKS_OP Floats signed_bytes(const std::byte* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
  }
};

#include "specula/cpu/detail/kernels_blocks_body.hpp"
#undef SPECULA_BLOCKS_TARGET
#undef SPECULA_BLOCKS_OP

}  // namespace blocks_avx2

namespace blocks_avx_vnni {

#define SPECULA_BLOCKS_TARGET gnu::target("avx2,fma,f16c,avxvnni")
#define SPECULA_BLOCKS_OP [[SPECULA_BLOCKS_TARGET, gnu::always_inline]] static inline

struct Ops : blocks_avx2::Ops {
  static constexpr bool kBytesApart = false;
  static constexpr int kTogether = 2;  // a sum takes five cycles, and two start in each
  static constexpr int panels(int columns) { return columns <= 2 ? 2 : 1; }

  SPECULA_BLOCKS_OP Ints dot(Ints sum, Ints w, Ints x) { return _mm256_dpwssd_avx_epi32(sum, w, x); }
  SPECULA_BLOCKS_OP Ints dot_bytes(Ints sum, Ints w, Ints x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
  SPECULA_BLOCKS_OP Ints end_bytes(Ints sum) { return sum; }
};

#include "specula/cpu/detail/kernels_blocks_body.hpp"
#undef SPECULA_BLOCKS_TARGET
#undef SPECULA_BLOCKS_OP

}  // namespace blocks_avx_vnni

namespace blocks_avx512 {

#define SPECULA_BLOCKS_TARGET gnu::target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")
#define SPECULA_BLOCKS_OP [[SPECULA_BLOCKS_TARGET, gnu::always_inline]] static inline

/// A strip is the 16 rows of a panel.
struct Ops {
  using Ints = __m512i;
  using Floats = __m512;
  using Used = simd::WideRegisters;
  static constexpr int kLanes = 16, kStrips = 1, kTogether = 1, kSums = 12;
  static constexpr bool kBytes = true, kBytesApart = false;
  /// One: panels lie one after the other, and several at once are streams of a few thousand bytes, each of
  /// which a prefetcher has to find again.
  static constexpr int panels(int) { return 1; }
  /// Whether every other word has sums of its own: up to eight inputs, beyond which registers are missing.
  static constexpr bool apart(int columns) { return columns < 9; }
  // The unmasked forms of some instructions warn of an uninitialised variable in g++ 12.
  static constexpr __mmask16 kAll = 0xffff;
  static constexpr __mmask32 kAll16 = 0xffffffffu;

  SPECULA_BLOCKS_OP Ints load(const std::byte* at) { return _mm512_loadu_si512(at); }
  SPECULA_BLOCKS_OP Ints same(const std::uint32_t* at) { return _mm512_set1_epi32(static_cast<int>(*at)); }
  SPECULA_BLOCKS_OP Ints same(const std::int32_t* at) { return _mm512_set1_epi32(*at); }
  SPECULA_BLOCKS_OP Ints same16(int value) { return _mm512_set1_epi16(static_cast<short>(value)); }
  SPECULA_BLOCKS_OP Ints no_ints() { return _mm512_setzero_si512(); }
  SPECULA_BLOCKS_OP Ints both(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  SPECULA_BLOCKS_OP Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  SPECULA_BLOCKS_OP Ints add_bits(Ints a, Ints b, Ints mask) {
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
  }
  template <int k>
  SPECULA_BLOCKS_OP Ints shift(Ints a) {
    if constexpr (k > 0) return _mm512_slli_epi16(a, k);
    if constexpr (k < 0) return _mm512_srli_epi16(a, -k);
    return a;
  }
  SPECULA_BLOCKS_OP Ints shift_right(Ints a, int k) { return _mm512_srl_epi16(a, _mm_cvtsi32_si128(k)); }
  template <int k>
  SPECULA_BLOCKS_OP Ints shift_signed(Ints a) {
    return _mm512_srai_epi16(a, k);
  }
  template <int k>
  SPECULA_BLOCKS_OP Ints shift_wide(Ints a) {
    return _mm512_maskz_slli_epi32(kAll, a, k);
  }
  SPECULA_BLOCKS_OP Ints dot(Ints sum, Ints w, Ints x) { return _mm512_dpwssd_epi32(sum, w, x); }
  SPECULA_BLOCKS_OP Ints dot_bytes(Ints sum, Ints w, Ints x) { return _mm512_dpbusd_epi32(sum, w, x); }
  SPECULA_BLOCKS_OP Ints end_bytes(Ints sum) { return sum; }

  SPECULA_BLOCKS_OP Floats zero() { return _mm512_setzero_ps(); }
  SPECULA_BLOCKS_OP Floats load(const float* at) { return _mm512_loadu_ps(at); }
  SPECULA_BLOCKS_OP void store(float* at, Floats a) { _mm512_storeu_ps(at, a); }
  SPECULA_BLOCKS_OP Floats same(const float* at) { return _mm512_set1_ps(*at); }
  SPECULA_BLOCKS_OP Floats to_floats(Ints a) { return _mm512_maskz_cvtepi32_ps(kAll, a); }
  SPECULA_BLOCKS_OP Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  SPECULA_BLOCKS_OP Floats minus_times(Floats a, Floats b) {
    const Ints sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
    return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), sign)), b);
  }
  SPECULA_BLOCKS_OP Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  SPECULA_BLOCKS_OP Floats halves(const std::byte* at) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  SPECULA_BLOCKS_OP Floats bytes(const std::byte* at) {
    return to_floats(_mm512_maskz_cvtepu8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
  }
  SPECULA_BLOCKS_OP Floats signed_bytes(const std::byte* at) {
    return to_floats(_mm512_maskz_cvtepi8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
  }
};

#include "specula/cpu/detail/kernels_blocks_body.hpp"
#undef SPECULA_BLOCKS_TARGET
#undef SPECULA_BLOCKS_OP

}  // namespace blocks_avx512

#endif

#undef SPECULA_ROLLED
#undef SPECULA_ROLLED_

}  // namespace specula::cpu::detail
