// SPDX-License-Identifier: MIT
// KV cache element types and their conversion for tensor cores: 16-bit elements are used as stored, e4m3
// bytes are widened in registers.
#pragma once

#include "specula/cuda/args/integers.cuh"
#include "specula/cuda/args/types.cuh"
#include "specula/cuda/detail/primitives/thread/mma_layout.cuh"
#include "specula/cuda/detail/primitives/thread/numbers.cuh"

namespace specula {
namespace cuda {
namespace detail {

/// The e4m3 numbers in bytes 1 and 3 of a word as the halves of a register, exactly: exponent and mantissa
/// are moved to the element's fields, and a factor corrects the difference of the exponents' biases, for
/// subnormals too. The two codes of NaN become 480 and -480.
SPECULA_HD std::uint32_t widen(BFloat16, std::uint32_t bytes) {
  const std::uint32_t moved = (bytes & 0x7F007F00u) >> 4 | (bytes & 0x80008000u);  // times 2^-120
#ifdef __CUDA_ARCH__
  std::uint32_t out;  // sm_80 has only fma here; adding -0 changes no sum
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(moved), "r"(0x7B807B80u), "r"(0x80008000u));
  return out;
#else
  return pack(BFloat16{}, to_float(BFloat16{static_cast<std::uint16_t>(moved)}) * 0x1p120f,
              to_float(BFloat16{static_cast<std::uint16_t>(moved >> 16)}) * 0x1p120f);
#endif
}
SPECULA_HD std::uint32_t widen(Half, std::uint32_t bytes) {
  const std::uint32_t moved = (bytes & 0x7F007F00u) >> 1 | (bytes & 0x80008000u);  // times 2^-8
#ifdef __CUDA_ARCH__
  std::uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(moved), "r"(0x5C005C00u));
  return out;
#else
  return pack(Half{}, to_float(Half{static_cast<std::uint16_t>(moved)}) * 0x1p8f,
              to_float(Half{static_cast<std::uint16_t>(moved >> 16)}) * 0x1p8f);
#endif
}

#ifdef __CUDACC__
/// Stores of 4, 8 and 16 bytes, aligned to their size, that bypass the L1 cache. Not __stcg() of vectors,
/// which only nvcc has.
SPECULA_HD void store_past_l1(void* to, std::uint32_t a) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.cg.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(a) : "memory");
#else
  static_cast<void>(to), static_cast<void>(a);
#endif
}
SPECULA_HD void store_past_l1(void* to, std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.cg.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(a), "r"(b)
               : "memory");
#else
  static_cast<void>(to), static_cast<void>(a), static_cast<void>(b);
#endif
}
SPECULA_HD void store_past_l1(void* to, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
#else
  static_cast<void>(to), static_cast<void>(a), static_cast<void>(b), static_cast<void>(c),
      static_cast<void>(d);
#endif
}
#endif  // __CUDACC__

/// Stores of two and four neighbouring elements, aligned to their total size; they bypass the L1 cache, since
/// nothing rereads them here.
template <class Element>
SPECULA_HD void store_two(Element* to, std::uint32_t two) {
#ifdef __CUDA_ARCH__
  store_past_l1(to, two);
#else
  to[0].bits = static_cast<std::uint16_t>(two);
  to[1].bits = static_cast<std::uint16_t>(two >> 16);
#endif
}
template <class Element>
SPECULA_HD void store_four(Element* to, std::uint32_t low, std::uint32_t high) {
#ifdef __CUDA_ARCH__
  store_past_l1(to, low, high);
#else
  store_two(to, low);
  store_two(to + 2, high);
#endif
}

/// Makes fragments of B from the registers of ldmatrix. One pass, two chunks of sixteen keys, is kSteps
/// products deep (keys) or wide (values), 16 columns each. `f`: registers 0 and 1 are B of one product, 2 and
/// 3 of the other: keys 0..7 and 8..15 for K, columns 0..7 and 8..15 of the step for V.
template <class Element, class Stored>
struct StoredKv;

template <class Element>
struct StoredKv<Element, Element> {
  static constexpr int kSteps = 1;

  /// The column of the cache, the query and the output that is column n of the products.
  SPECULA_HD static int column(int n) { return n; }
  /// Columns n and n + 1 of the products, n even, out of a row that is 4-byte aligned.
  SPECULA_HD static std::uint32_t load_pair(const Element* row, int n) {
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<const std::uint32_t*>(row + n);
#else
    return row[n].bits | static_cast<std::uint32_t>(row[n + 1].bits) << 16;
#endif
  }
  /// Columns c, c + 1, 8 + c and 9 + c of sixteen of the products, c even and below 8, to their places in a
  /// row.
  SPECULA_HD static void store(Element* sixteen, int c, const float (&x)[4]) {
    store_two(sixteen + c, pack(Element{}, x[0], x[1]));
    store_two(sixteen + 8 + c, pack(Element{}, x[2], x[3]));
  }
  /// `step` of `b`, as load_matrices() of key_cell() gives it.
  SPECULA_HD static void keys(const std::uint32_t (&b)[4], int, std::uint32_t (&f)[4]) {
    SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) f[i] = b[i];
  }
  /// `step` of `b`, as load_transposed() of value_cell() gives it.
  SPECULA_HD static void values(const std::uint32_t (&b)[4], int, std::uint32_t (&f)[4]) {
    SPECULA_UNROLL
    for (int i = 0; i < 4; ++i) f[i] = b[i];
  }
};

/// A chunk has 16 columns, and ldmatrix takes two of them for one: a lane gets bytes of columns 4 j to 4 j +
/// 3 of a key, or of two columns of two keys. Its even and its odd bytes are two registers. So among sixteen
/// columns the products take the even ones for 0..7 and the odd ones for 8..15, in K, V, the query and the
/// output.
template <class Element>
struct StoredKv<Element, Float8E4M3> {
  static constexpr int kSteps = 2;

  SPECULA_HD static int column(int n) { return n - n % 16 + 2 * (n % 8) + n / 8 % 2; }
  SPECULA_HD static std::uint32_t load_pair(const Element* row, int n) {
    return row[column(n)].bits | static_cast<std::uint32_t>(row[column(n + 1)].bits) << 16;
  }
  SPECULA_HD static void store(Element* sixteen, int c, const float (&x)[4]) {
    store_four(sixteen + 2 * c, pack(Element{}, x[0], x[2]), pack(Element{}, x[1], x[3]));
  }
  SPECULA_HD static void keys(const std::uint32_t (&b)[4], int step, std::uint32_t (&f)[4]) {
    SPECULA_UNROLL
    for (int half = 0; half < 2; ++half) {
      f[2 * half] = even(b[2 * half + step]);
      f[2 * half + 1] = odd(b[2 * half + step]);
    }
  }
  SPECULA_HD static void values(const std::uint32_t (&b)[4], int step, std::uint32_t (&f)[4]) {
    SPECULA_UNROLL
    for (int half = 0; half < 2; ++half) {
      f[half] = even(b[2 * step + half]);
      f[2 + half] = odd(b[2 * step + half]);
    }
  }

  SPECULA_HD static std::uint32_t even(std::uint32_t bytes) { return widen(Element{}, bytes << 8); }
  SPECULA_HD static std::uint32_t odd(std::uint32_t bytes) { return widen(Element{}, bytes); }
};

}  // namespace detail
}  // namespace cuda
}  // namespace specula
