// SPDX-License-Identifier: MIT
// How a decoder's weights are loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "specula/cpu/inputs.hpp"

namespace specula::cpu {

/// Expands numbers of a GGUF type that the library does not expand itself, such as Q2_K: `out`.size() of
/// them, which are whole blocks, of type `id` (ggml's number) at `row`. Returns false, and writes nothing,
/// for a type that it does not know either. A program that is linked with ggml makes one of
/// ggml_get_type_traits(id)->to_float.
using GgufExpand = std::function<bool(std::uint32_t id, const std::byte* row, std::span<float> out)>;

struct DecoderConfig;

/// Options of load_decoder_weights().
struct LoadOptions {
  /// How matrices are kept, whatever the file has; bf16 rounds to the nearest, blocks keeps those that the
  /// file has. Empty: see load_decoder_weights().
  std::optional<WeightType> stored = {};
  GgufExpand expand = {};  ///< for GGUF files of further types; empty: these are refused
  /// Changes what the file's config says, where its user knows better: the states that an EAGLE-3 head reads,
  /// which its feature_layers then follow; a state below 0 is std::invalid_argument.
  /// After it the config is checked as a file's is, and with target and tensors. What it throws passes
  /// through. Empty: nothing is changed.
  std::function<void(DecoderConfig&)> overrule = {};
};

}  // namespace specula::cpu
