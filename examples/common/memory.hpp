// SPDX-License-Identifier: MIT
// What memory there is, to refuse at once what cannot fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace specula_examples {

/// Bytes that this process can still take: the least of the machine's available memory, the room in its
/// control group and its limit of address space. Empty where the system does not say (it is read as Linux
/// shows it). Not a promise: other programs take memory, too.
std::optional<std::uint64_t> available_memory();

/// Throws std::runtime_error if `bytes` are more than available_memory(). `what` is what needs them, say "the
/// KV cache of 4096 tokens".
void check_memory(const std::string& what, std::uint64_t bytes);

/// As check_memory() with a figure that was measured before.
void check_memory(const std::string& what, std::uint64_t bytes, std::optional<std::uint64_t> available);

}  // namespace specula_examples
