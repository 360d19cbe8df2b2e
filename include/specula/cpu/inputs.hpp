// SPDX-License-Identifier: MIT
// Data types of weights and inputs in a model's matrix products and of its KV cache, and what the processor
// has for them. In its own header for programs that choose them but do not compile the model.
#pragma once

#include "specula/simd/isa.hpp"

#if SPECULA_X86
#include <cpuid.h>
#endif

namespace specula::cpu {

/// Data type of the weights in memory: bfloat16 (half the bytes of a float, and exact for a file that has
/// BF16), the model's compute type, or the blocks of 4 to 8 bits that a quantised file has (GGUF,
/// int8_groups.hpp), bit for bit.
enum class WeightType { bf16, full, blocks };

/// Data type of a product's inputs.
///   full   not rounded. Weights in blocks take integers: as int16
///   bf16   of weights in bfloat16: rounded to bfloat16, as GPUs run such models; others as `full`. Requires
///          has_bf16_products(), where an instruction multiplies pairs of weights
///   int16  of weights in blocks: 16 bits, with a step for each 32 inputs; others as `full`
///   int8   of weights in blocks: 8 bits. A hundred times as far from exact inputs, and on processors without
///   VNNI
///          faster for several inputs; others as `full`
enum class Inputs { full, bf16, int16, int8 };

namespace detail {

/// Processors of AMD by family and model: Zen 4, and all of Zen 5.
constexpr bool is_zen_with_bf16(unsigned family, unsigned model) {
  const auto within = [&](unsigned first, unsigned last) { return first <= model && model <= last; };
  return family == 26 || (family == 25 && (within(0x10, 0x1f) || within(0x60, 0x7f) || within(0xa0, 0xaf)));
}

}  // namespace detail

/// Data type of keys and values in memory: half floats (half the bytes of floats, and 10 times nearer to them
/// than bfloat16; beyond 65504 they are infinite), or the model's compute type. Attention to half floats is
/// faster on AVX2 and AVX-512, slower on other instructions.
enum class CacheType { full, half };

/// Whether this processor multiplies pairs of bfloat16 in one instruction.
inline bool has_bf16_products() {
#if SPECULA_X86
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

/// Whether that is also faster than products of floats: by a table of processors, so that a text does not
/// depend on a clock. AMD's Zen 4 and Zen 5 take two products where FMA takes one; Intel's take half of one
/// (measured), and a processor that is not in the table counts as one of those.
inline bool bf16_products_pay() {
#if SPECULA_X86
  unsigned a = 0, vendor = 0, c = 0, d = 0, version = 0;
  constexpr unsigned kAuthenticAmd = 0x68747541;  // its first four letters
  if (!has_bf16_products() || !__get_cpuid(0, &a, &vendor, &c, &d) || vendor != kAuthenticAmd) return false;
  if (!__get_cpuid(1, &version, &a, &c, &d)) return false;
  return detail::is_zen_with_bf16((version >> 8 & 15u) + (version >> 20 & 255u),
                                  (version >> 4 & 15u) + (version >> 16 & 15u) * 16);
#else
  return false;
#endif
}

/// Whether this processor sums products of integers in one instruction on registers of AVX2.
inline bool has_avx_vnni() {
#if SPECULA_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  return specula::supported(Isa::avx2) && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1u) != 0;
#else
  return false;
#endif
}

}  // namespace specula::cpu
