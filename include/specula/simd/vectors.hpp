// SPDX-License-Identifier: MIT
// SIMD vectors by the vector extensions of GCC and Clang: a body is written once and compiled for each
// instruction set (compiled.hpp).
//
// A body works on blocks of 16 lanes, kept as kParts registers: g++ moves the lanes of a vector that is wider
// than its registers through memory. Vectors are passed by reference, because passing them by value depends
// on the instruction set. A function that must be one instruction to keep its rounding or its speed, and that
// the extensions cannot express, is inline assembly under g++. Intrinsics cannot be used: neither compiler
// inlines them into a body without a target attribute. Clang does not accept registers in the assembly of
// such a body, but recognises the expressions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "specula/base/half.hpp"
#include "specula/simd/isa.hpp"

/// Before a loop of constant length: unrolls it, so that its arrays stay in registers.
#if defined(__clang__)
#define SPECULA_UNROLL_LANES _Pragma("clang loop unroll(full)")
#else
#define SPECULA_UNROLL_LANES _Pragma("GCC unroll 16")
#endif

/// g++ for x86: the widest instructions by inline assembly.
#if SPECULA_X86 && !defined(__clang__)
#define SPECULA_X86_ASM 1
#else
#define SPECULA_X86_ASM 0
#endif

namespace specula::simd {

inline constexpr int kLanes = 16;  // of a block

template <std::size_t bytes>
struct Register {
  typedef float Floats __attribute__((vector_size(bytes)));
  typedef std::int32_t Ints __attribute__((vector_size(bytes)));
  typedef std::uint32_t Words __attribute__((vector_size(bytes)));
  typedef std::uint16_t Shorts __attribute__((vector_size(bytes / 2)));  // as many
  typedef std::uint64_t Wides __attribute__((vector_size(bytes)));
};

template <Isa isa>
struct Vectors {
  static constexpr std::size_t kBytes = isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 16;
  static constexpr int kWidth = static_cast<int>(kBytes / sizeof(float)), kParts = kLanes / kWidth;
  /// Whether multiply_add() and multiply_subtract() round once.
  static constexpr bool kFused = isa != Isa::portable;
  using Floats = typename Register<kBytes>::Floats;
  using Ints = typename Register<kBytes>::Ints;
  using Words = typename Register<kBytes>::Words;
  using Shorts = typename Register<kBytes>::Shorts;
  using Wides = typename Register<kBytes>::Wides;
  using Block = Floats[std::size_t{kParts}];  ///< 16 lanes

  template <class Vector, class T>
  [[gnu::always_inline]] static inline void load(Vector& out, const T* from) {
    static_assert(sizeof(T) == 4);
    std::memcpy(&out, from, sizeof(Vector));
  }
  template <class Vector, class T>
  [[gnu::always_inline]] static inline void store(T* to, const Vector& from) {
    static_assert(sizeof(T) == 4);
    std::memcpy(to, &from, sizeof(Vector));
  }
  [[gnu::always_inline]] static inline void select(Floats& out, const Ints& where, const Floats& then) {
    out = Floats((where & Ints(then)) | (~where & Ints(out)));
  }
  /// As many half floats as floats.
  [[gnu::always_inline]] static inline void load_half(Floats& out, const std::uint16_t* from) {
#if SPECULA_X86_ASM
    if constexpr (kBytes > 16) {  // F16C, which Isa::avx2 asks for
      __asm__("vcvtph2ps %1, %0" : "=v"(out) : "m"(*reinterpret_cast<const char(*)[kBytes / 2]>(from)));
      return;
    }
#endif
    Shorts some;
    std::memcpy(&some, from, sizeof(some));
    Ints bits = __builtin_convertvector(some, Ints);
    specula::detail::widen<Floats>(bits);
    out = Floats(bits);
  }
  /// The upper halves of as many floats.
  [[gnu::always_inline]] static inline void load_bfloat16(Floats& out, const std::uint16_t* from) {
    Ints bits;
#if SPECULA_X86_ASM
    if constexpr (kBytes > 16) {  // g++ 12 widens both halves apart
      __asm__("vpmovzxwd %1, %0" : "=v"(bits) : "m"(*reinterpret_cast<const char(*)[kBytes / 2]>(from)));
      out = Floats(bits << 16);
      return;
    }
#endif
    Shorts some;
    std::memcpy(&some, from, sizeof(some));
    bits = __builtin_convertvector(some, Ints);
    out = Floats(bits << 16);
  }
  /// out = max(out, a), and `a` where either is NaN.
  [[gnu::always_inline]] static inline void raise(Floats& out, const Floats& a) {
#if SPECULA_X86_ASM
    if constexpr (kBytes > 16) {  // g++ 12 compares and masks where `a` is 0
      __asm__("vmaxps %1, %0, %0" : "+v"(out) : "vm"(a));
      return;
    }
#endif
    out = out > a ? out : a;
  }

  /// out = a * b + c
  [[gnu::always_inline]] static inline void multiply_add(Floats& out, const Floats& a, const Floats& b,
                                                         const Floats& c) {
#if SPECULA_X86_ASM
    if constexpr (kFused) {
      Floats product = a;
      __asm__("vfmadd213ps %2, %1, %0" : "+v"(product) : "v"(b), "vm"(c));
      out = product;
      return;
    }
#elif defined(__clang__)
#pragma clang fp contract(on)
#endif
    out = a * b + c;
  }
  /// out = a * b - c
  [[gnu::always_inline]] static inline void multiply_subtract(Floats& out, const Floats& a, const Floats& b,
                                                              const Floats& c) {
#if SPECULA_X86_ASM
    if constexpr (kFused) {
      Floats product = a;
      __asm__("vfmsub213ps %2, %1, %0" : "+v"(product) : "v"(b), "vm"(c));
      out = product;
      return;
    }
#elif defined(__clang__)
#pragma clang fp contract(on)
#endif
    out = a * b - c;
  }

  /// The 64-bit products of the even lanes of `a` and `b`.
  [[gnu::always_inline]] static inline void multiply_even(Wides& out, const Words& a, const Words& b) {
#if SPECULA_X86_ASM
    if constexpr (kBytes > 16)
      __asm__("vpmuludq %2, %1, %0" : "=v"(out) : "v"(a), "vm"(b));
    else
      out = Wides(__builtin_ia32_pmuludq128(Ints(a), Ints(b)));
#else
    out = (Wides(a) & 0xFFFFFFFFu) * (Wides(b) & 0xFFFFFFFFu);
#endif
  }

  /// Even lanes of `even`, odd lanes of `odd`.
  [[gnu::always_inline]] static inline void blend_odd(Words& out, const Words& even, const Words& odd) {
    if constexpr (kWidth == 4)
      out = __builtin_shufflevector(even, odd, 0, 5, 2, 7);
    else if constexpr (kWidth == 8)
      out = __builtin_shufflevector(even, odd, 0, 9, 2, 11, 4, 13, 6, 15);
    else
      out = __builtin_shufflevector(even, odd, 0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31);
  }
  /// Within each 128 bits: low = a0 b0 a1 b1, high = a2 b2 a3 b3.
  [[gnu::always_inline]] static inline void interleave(Words& low, Words& high, const Words& a,
                                                       const Words& b) {
    if constexpr (kWidth == 4) {
      low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    } else if constexpr (kWidth == 8) {
      low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
      high = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    } else {
      low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
      high = __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
  }
  /// Within each 128 bits: low = a0 a1 b0 b1, high = a2 a3 b2 b3.
  [[gnu::always_inline]] static inline void interleave_pairs(Words& low, Words& high, const Words& a,
                                                             const Words& b) {
    const Wides wide_a = Wides(a), wide_b = Wides(b);
    if constexpr (kWidth == 4) {
      low = Words(__builtin_shufflevector(wide_a, wide_b, 0, 2));
      high = Words(__builtin_shufflevector(wide_a, wide_b, 1, 3));
    } else if constexpr (kWidth == 8) {
      low = Words(__builtin_shufflevector(wide_a, wide_b, 0, 4, 2, 6));
      high = Words(__builtin_shufflevector(wide_a, wide_b, 1, 5, 3, 7));
    } else {
      low = Words(__builtin_shufflevector(wide_a, wide_b, 0, 8, 2, 10, 4, 12, 6, 14));
      high = Words(__builtin_shufflevector(wide_a, wide_b, 1, 9, 3, 11, 5, 13, 7, 15));
    }
  }

  enum class Order { above = 30, at_least = 29 };  // as vcmpps has it: ordered, quiet
  /// A bit for each lane where a > b, or a >= b: 0 where one is NaN.
  template <Order order>
  [[gnu::always_inline]] static inline std::uint32_t compare(const Floats& a, const Floats& b) {
#if SPECULA_X86_ASM
    if constexpr (kBytes == 64) {
      std::uint16_t mask;
      __asm__("vcmpps %3, %2, %1, %0" : "=k"(mask) : "v"(a), "vm"(b), "i"(static_cast<int>(order)));
      return mask;
    }
#endif
    if constexpr (order == Order::above)
      return bits(a > b);
    else
      return bits(a >= b);
  }

  /// Lanes that hold NaN: a bit for each on AVX-512 under g++, else all ones.
  using Nans = std::conditional_t<SPECULA_X86_ASM && kBytes == 64, std::uint16_t, Ints>;
  /// Adds the lanes where `a` or `b` is NaN.
  [[gnu::always_inline]] static inline void find_nans(Nans& nans, const Floats& a, const Floats& b) {
#if SPECULA_X86_ASM
    if constexpr (kBytes > 16) {
      Nans found;
      if constexpr (kBytes == 64)
        __asm__("vcmpps $3, %3, %2, %1\n\tkorw %1, %0, %0" : "+k"(nans), "=&k"(found) : "v"(a), "v"(b));
      else
        __asm__("vcmpps $3, %3, %2, %1\n\tvorps %1, %0, %0" : "+x"(nans), "=&x"(found) : "x"(a), "x"(b));
    } else
#endif
      nans |= (a != a) | (b != b);
  }
  [[gnu::always_inline]] static inline bool any(const Nans& nans) {
    if constexpr (std::is_integral_v<Nans>)
      return nans != 0;
    else
      return bits(nans) != 0;
  }

  /// Sum of 16 lanes in one fixed order: halves, 8, 4, 2, 1.
  [[gnu::always_inline]] static inline float sum(const Block& x) {
    if constexpr (kWidth == 4) {
      return sum4((x[0] + x[2]) + (x[1] + x[3]));
    } else {
      Eight eight, other;
      if constexpr (kWidth == 8)
        eight = x[0], other = x[1];
      else
        split(eight, other, x[0]);
      eight += other;
      Four four, last;
      split(four, last, eight);
      return sum4(four + last);
    }
  }
  /// The largest lane of a register without NaN.
  [[gnu::always_inline]] static inline float largest(const Floats& x) {
    if constexpr (kWidth == 4) {
      return largest4(x);
    } else {
      Eight eight = {}, other = {};
      if constexpr (kWidth == 8)
        eight = x;
      else
        split(eight, other, x), eight = eight > other ? eight : other;
      Four four, last;
      split(four, last, eight);
      four = four > last ? four : last;
      return largest4(four);
    }
  }

 private:
  using Four = Register<16>::Floats;
  using Eight = Register<32>::Floats;
  /// The sign bit of each lane.
  [[gnu::always_inline]] static inline std::uint32_t bits(const Ints& where) {
    std::uint32_t mask = 0;
#if SPECULA_X86_ASM
    if constexpr (kBytes == 32) {
      __asm__("vmovmskps %1, %0" : "=r"(mask) : "x"(where));
      return mask;
    }
#endif
#if SPECULA_X86
    Four quarter[std::size_t{kWidth / 4}];
    std::memcpy(quarter, &where, sizeof(where));
    SPECULA_UNROLL_LANES for (int i = 0; i < kWidth / 4; ++i) mask |=
        static_cast<std::uint32_t>(__builtin_ia32_movmskps(quarter[i])) << 4 * i;
#else
    SPECULA_UNROLL_LANES for (int i = 0; i < kWidth; ++i) mask |= static_cast<std::uint32_t>(where[i] & 1)
                                                                  << i;
#endif
    return mask;
  }
  [[gnu::always_inline]] static inline void split(Eight& low, Eight& high,
                                                  const typename Register<64>::Floats& x) {
    low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
    high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  [[gnu::always_inline]] static inline void split(Four& low, Four& high, const Eight& x) {
    low = __builtin_shufflevector(x, x, 0, 1, 2, 3), high = __builtin_shufflevector(x, x, 4, 5, 6, 7);
  }
  // By shuffles: g++ moves single lanes other than the first through memory.
  [[gnu::always_inline]] static inline float sum4(const Four& x) {
    const Four two = x + __builtin_shufflevector(x, x, 2, 3, 2, 3);
    return (two + __builtin_shufflevector(two, two, 1, 1, 3, 3))[0];
  }
  [[gnu::always_inline]] static inline float largest4(const Four& x) {
    const Four last = __builtin_shufflevector(x, x, 2, 3, 2, 3), two = x > last ? x : last;
    const Four other = __builtin_shufflevector(two, two, 1, 1, 3, 3), one = two > other ? two : other;
    return one[0];
  }
};

}  // namespace specula::simd
