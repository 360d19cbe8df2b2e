// Definitions of the CPU model in float: include this in one file of a program, and eigen/llama.hpp in the
// others. The CMake target specula::eigen compiles such a file.
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
template class Llama<float>;
template LlamaWeights<float> load_llama_weights(const std::filesystem::path&,
                                                std::shared_ptr<const LlamaWeights<float>>);
template LlamaWeights<float> random_llama_weights(const LlamaConfig&, std::uint64_t, WeightType,
                                                  std::shared_ptr<const LlamaWeights<float>>);
/// @endcond

}  // namespace specula::eigen
