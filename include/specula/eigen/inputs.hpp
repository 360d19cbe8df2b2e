// What a model's products take: types of weights and of inputs. Apart, for programs that choose them but do
// not compile the model.
#pragma once

#include "specula/base/compiler_options.hpp"

namespace specula::eigen {

/// How the weights lie in memory: bfloat16 (half the bytes, and exact for a file that has BF16), or as wide
/// as the model calculates.
enum class WeightType { bf16, full };

/// What a product takes its inputs as. bf16 rounds them to bfloat16, as GPUs run such models: two weights an
/// instruction, on machines that have it (has_bf16_products()).
enum class Inputs { full, bf16 };

}  // namespace specula::eigen
