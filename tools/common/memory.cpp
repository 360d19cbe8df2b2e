// SPDX-License-Identifier: MIT
#include "memory.hpp"

#include <stdexcept>

#include <specula/cpu/detail/available_memory.hpp>

#include "text_table.hpp"

namespace specula_tools {
namespace {

std::string gibibytes(std::uint64_t bytes) {
  return fixed(static_cast<double>(bytes) / double{1 << 30}, 2) + " GiB";
}

}  // namespace

void check_memory(const std::string& what, std::uint64_t bytes) {
  check_memory(what, bytes, specula::cpu::detail::available_memory());
}

void check_memory(const std::string& what, std::uint64_t bytes, std::optional<std::uint64_t> available) {
  if (available && bytes > *available)
    throw std::runtime_error(what + " needs " + gibibytes(bytes) + " of memory, there are " +
                             gibibytes(*available));
}

}  // namespace specula_tools
