// SPDX-License-Identifier: MIT
// Definitions of the CPU model in float: include this in one file of a program, and cpu/decoder.hpp in the
// others. The CMake target specula::cpu compiles such a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "specula/cpu/decoder.hpp"
#include "specula/cpu/decoder_weights.hpp"
#include "specula/cpu/detail/decoder_exits.hpp"
#include "specula/cpu/detail/decoder_members.hpp"
#include "specula/cpu/detail/decoder_slots.hpp"
#include "specula/cpu/detail/load_decoder_weights.hpp"
#include "specula/cpu/load_options.hpp"

#ifndef SPECULA_BLOCK_PRODUCTS_APART
#include "specula/cpu/compile_block_products.hpp"
#endif

namespace specula::cpu {

/// @cond
template class Decoder<float>;
template DecoderWeights<float> load_decoder_weights(const std::filesystem::path&,
                                                    std::shared_ptr<const DecoderWeights<float>>,
                                                    const LoadOptions&);
template DecoderWeights<float> random_decoder_weights(const DecoderConfig&, std::uint64_t, WeightType,
                                                      std::shared_ptr<const DecoderWeights<float>>);
/// @endcond

}  // namespace specula::cpu
