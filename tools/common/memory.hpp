// SPDX-License-Identifier: MIT
// Refuses at once what cannot fit into memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace specula_tools {

/// Throws std::runtime_error if `bytes` are more than this process can still take. `what` is what needs them,
/// say "the KV cache of 4096 tokens".
void check_memory(const std::string& what, std::uint64_t bytes);

/// As check_memory() with a figure that was measured before.
void check_memory(const std::string& what, std::uint64_t bytes, std::optional<std::uint64_t> available);

}  // namespace specula_tools
