// SPDX-License-Identifier: MIT
// What a decoder holds of one text.
#pragma once

#include <cstdint>
#include <vector>

#include "specula/cpu/decoder_config.hpp"
#include "specula/cpu/decoder_options.hpp"
#include "specula/cpu/detail/block.hpp"
#include "specula/cpu/detail/decoder_stages.hpp"
#include "specula/cpu/detail/model_input.hpp"
#include "specula/cpu/detail/slot_memory.hpp"
#include "specula/model/view_guard.hpp"

namespace specula::cpu::detail {

template <class Real>
struct DecoderText {
  DecoderText(const DecoderConfig& config, const DecoderOptions& options)
      : memory(config, options),
        stages(config.exits.empty() ? std::vector{config.layers} : config.exits, options) {}
  DecoderText(const DecoderText&) = delete;
  DecoderText& operator=(const DecoderText&) = delete;

  /// For a pass over tokens that see `base` slots, while `end` are in use.
  Segment<Real> segment(std::int32_t base, std::int32_t end) {
    return {.base = base, .end = end, .memory = &memory, .target = &target};
  }

  SlotMemory<Real> memory;
  DecoderStages stages;
  TargetState<Real> target;
  specula::detail::ChangeCount changes;  // of a text that is not the only one
  double seconds = 0, share = 0;         // its share of the passes over several texts; of the one that runs
};

}  // namespace specula::cpu::detail
