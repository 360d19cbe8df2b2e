// SPDX-License-Identifier: MIT
// Expansion of all types of GGUF by ggml's own code, in programs that are linked with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <specula/cpu/load_options.hpp>

#if SPECULA_HAS_GGML
#include <ggml.h>
#endif

namespace specula_tools {

/// For LoadOptions; empty in a program without ggml.
inline specula::cpu::GgufExpand ggml_expand() {
#if SPECULA_HAS_GGML
  return [](std::uint32_t id, const std::byte* row, std::span<float> out) {
    if (id >= GGML_TYPE_COUNT) return false;
    const ggml_type_traits* const type = ggml_get_type_traits(static_cast<ggml_type>(id));
    if (!type->to_float) return false;
    type->to_float(row, out.data(), static_cast<std::int64_t>(out.size()));
    return true;
  };
#else
  return {};
#endif
}

}  // namespace specula_tools
