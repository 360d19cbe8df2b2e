// Definitions of the CPU model in double, the reference: as compile_llama.hpp, for programs that use
// Llama<double>.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "specula/eigen/detail/llama_exits.hpp"
#include "specula/eigen/detail/llama_members.hpp"
#include "specula/eigen/detail/load_llama_weights.hpp"
#include "specula/eigen/llama.hpp"
#include "specula/eigen/llama_weights.hpp"

namespace specula::eigen {

/// @cond
template class Llama<double>;
template LlamaWeights<double> load_llama_weights(const std::filesystem::path&,
                                                 std::shared_ptr<const LlamaWeights<double>>);
template LlamaWeights<double> random_llama_weights(const LlamaConfig&, std::uint64_t, WeightType,
                                                   std::shared_ptr<const LlamaWeights<double>>);
/// @endcond

}  // namespace specula::eigen
