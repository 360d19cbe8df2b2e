// SPDX-License-Identifier: MIT
// What memory this process can still take, as Linux shows it. Formats: proc(5), and the kernel's pages on
// control groups (cgroup-v2.rst, "Memory"; cgroup-v1/memory.rst).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "specula/base/compiler_options.hpp"

#if __has_include(<sys/resource.h>) && __has_include(<unistd.h>)
#include <sys/resource.h>
#include <unistd.h>
#define SPECULA_HAS_LIMITS 1
#else
#define SPECULA_HAS_LIMITS 0
#endif

namespace specula::cpu::detail {

/// Where Linux says it. Tests have files of their own.
struct MemoryFiles {
  std::filesystem::path meminfo = "/proc/meminfo", own_groups = "/proc/self/cgroup",
                        groups = "/sys/fs/cgroup", own_pages = "/proc/self/statm";
};

/// The number that a file begins with.
inline std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

/// The number after a word.
inline std::optional<std::uint64_t> number_after(const std::filesystem::path& file, std::string_view word) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  for (std::string at; in >> at;)
    if (at == word && in >> value) return value;
  return std::nullopt;
}

/// Without the group's cached files, which give way.
inline std::optional<std::uint64_t> left_in_group(const std::filesystem::path& group, bool first_version) {
  const auto most = number_in(group / (first_version ? "memory.limit_in_bytes" : "memory.max")),
             used = number_in(group / (first_version ? "memory.usage_in_bytes" : "memory.current"));
  if (!most || !used) return std::nullopt;
  std::uint64_t cached = 0;
  for (const std::string key : {"active_file", "inactive_file"})
    cached += number_after(group / "memory.stat", first_version ? "total_" + key : key).value_or(0);
  const std::uint64_t taken = *used - std::min(*used, cached);
  return *most - std::min(*most, taken);
}

/// The least that is left in this process's group and those around it.
inline std::optional<std::uint64_t> left_in_groups(const MemoryFiles& files) {
  std::optional<std::uint64_t> least;
  std::ifstream in(files.own_groups);
  for (std::string line; std::getline(in, line);) {  // number:controllers:path, no controllers in version 2
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool first_version = !controllers.empty();
    if (first_version && controllers.find("memory") == line.npos) continue;
    const auto root = first_version ? files.groups / "memory" : files.groups;
    // In a container the path may be that outside; then only the root, which is its own group, is there.
    for (std::filesystem::path path = line.substr(second + 1);; path = path.parent_path()) {
      if (const auto left = left_in_group(root / path.relative_path(), first_version))
        least = std::min(*left, least.value_or(*left));
      if (!path.has_relative_path()) break;
    }
  }
  return least;
}

/// Under the limit of `ulimit -v`.
inline std::optional<std::uint64_t> left_of_address_space([[maybe_unused]] const MemoryFiles& files) {
#if SPECULA_HAS_LIMITS && defined(RLIMIT_AS)
  struct ::rlimit limit {};
  const auto pages = number_in(files.own_pages);
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !pages) return std::nullopt;
  const std::uint64_t most = limit.rlim_cur,
                      used = *pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return most - std::min(most, used);
#else
  return std::nullopt;
#endif
}

/// Bytes that this process can still take: the least of the machine's available memory, the room in its
/// control groups and its limit of address space. Empty where the system does not say. Not a promise: other
/// programs take memory, too.
inline std::optional<std::uint64_t> available_memory(const MemoryFiles& files = {}) {
  auto machine = number_after(files.meminfo, "MemAvailable:");
  if (machine) *machine *= 1024;
  std::optional<std::uint64_t> least;
  for (const auto& bytes : {machine, left_in_groups(files), left_of_address_space(files)})
    if (bytes) least = std::min(*bytes, least.value_or(*bytes));
  return least;
}

}  // namespace specula::cpu::detail

#undef SPECULA_HAS_LIMITS
