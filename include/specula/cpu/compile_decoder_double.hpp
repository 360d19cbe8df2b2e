// SPDX-License-Identifier: MIT
// Definitions of the CPU model in double, the reference: as compile_decoder.hpp, for programs that use
// Decoder<double>.
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

namespace specula::cpu {

/// @cond
template class Decoder<double>;
template DecoderWeights<double> load_decoder_weights(const std::filesystem::path&,
                                                     std::shared_ptr<const DecoderWeights<double>>,
                                                     const LoadOptions&);
template DecoderWeights<double> random_decoder_weights(const DecoderConfig&, std::uint64_t, WeightType,
                                                       std::shared_ptr<const DecoderWeights<double>>);
/// @endcond

}  // namespace specula::cpu
