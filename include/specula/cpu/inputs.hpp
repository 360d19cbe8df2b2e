// SPDX-License-Identifier: MIT
// Data types of weights and inputs in a model's matrix products, and what the processor has for them. In its
// own header for programs that choose them but do not compile the model.
#pragma once

#include "specula/simd/isa.hpp"

namespace specula::cpu {

/// Data type of the weights in memory: bfloat16 (half the bytes of a float, and exact for a file that has BF16), the
/// model's compute type, or the blocks of 4 to 8 bits that a quantised file has (GGUF, int8_groups.hpp), bit for bit.
enum class WeightType { bf16, full, blocks };

/// Data type of a product's inputs.
///   full   not rounded. Weights in blocks take integers: as int16
///   bf16   of weights in bfloat16: rounded to bfloat16, as GPUs run such models; others as `full`. Requires
///          has_bf16_products(), where an instruction multiplies pairs of weights
///   int16  of weights in blocks: 16 bits, with a step for each 32 inputs; others as `full`
///   int8   of weights in blocks: 8 bits. A hundred times as far from exact inputs, and on processors without VNNI
///          faster for several inputs; others as `full`
enum class Inputs { full, bf16, int16, int8 };

/// Whether this processor multiplies pairs of bfloat16 in one instruction.
inline bool has_bf16_products() {
#if SPECULA_X86
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace specula::cpu
