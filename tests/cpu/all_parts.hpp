// SPDX-License-Identifier: MIT
// What a plain Llama lacks, for the tests' models of random weights.
#pragma once

#include "specula/cpu/decoder_config.hpp"

namespace specula_test {

/// `config` with all optional parts of an attention block: biases, norms of queries and keys, scaled rotary
/// angles and a factor of their cosines and sines.
inline specula::cpu::DecoderConfig with_all_parts(specula::cpu::DecoderConfig config) {
  config.qkv_bias = config.output_bias = config.query_key_norms = true;
  config.rope_scaling = {.type = specula::cpu::RopeType::linear, .factor = 3, .attention_factor = 1.25};
  return config;
}

}  // namespace specula_test
