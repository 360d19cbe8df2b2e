// SPDX-License-Identifier: MIT
// Data types of weights and inputs in a model's matrix products and of its KV cache, and what the processor
// has for them. In its own header for programs that choose them but do not compile the model.
#pragma once

#include "specula/simd/isa.hpp"

namespace specula::cpu {

/// Data type of the weights in memory: bfloat16 (half the bytes, and exact for a file that has BF16), or the
/// model's compute type.
enum class WeightType { bf16, full };

/// Data type of a product's inputs. bf16 rounds them to bfloat16, as GPUs run such models; requires
/// has_bf16_products(), where an instruction multiplies pairs of weights.
enum class Inputs { full, bf16 };

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

}  // namespace specula::cpu
