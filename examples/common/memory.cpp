// SPDX-License-Identifier: MIT
#include "memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "text_table.hpp"

namespace specula_examples {
namespace {

/// The number that a file begins with.
std::optional<std::uint64_t> number_in(const char* file) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

/// The number after a word.
std::optional<std::uint64_t> number_after(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string word; in >> word;)
    if (std::uint64_t value = 0; word == key && in >> value) return value;
  return std::nullopt;
}

std::optional<std::uint64_t> available_on_machine() {
  const auto kib = number_after("/proc/meminfo", "MemAvailable:");
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

/// Without the group's cached files, which give way.
std::optional<std::uint64_t> left_in_group() {
  const auto most = number_in("/sys/fs/cgroup/memory.max"),
             taken = number_after("/sys/fs/cgroup/memory.stat", "anon");
  if (!most || !taken) return std::nullopt;
  return *most > *taken ? *most - *taken : 0;
}

std::optional<std::uint64_t> left_of_address_space() {
  rlimit limit{};
  const auto pages = number_in("/proc/self/statm");
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !pages) return std::nullopt;
  const std::uint64_t used = *pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

std::string gibibytes(std::uint64_t bytes) {
  return fixed(static_cast<double>(bytes) / double{1 << 30}, 2) + " GiB";
}

}  // namespace

std::optional<std::uint64_t> available_memory() {
  std::optional<std::uint64_t> least;
  for (const auto& bytes : {available_on_machine(), left_in_group(), left_of_address_space()})
    if (bytes) least = std::min(*bytes, least.value_or(*bytes));
  return least;
}

void check_memory(const std::string& what, std::uint64_t bytes) {
  check_memory(what, bytes, available_memory());
}

void check_memory(const std::string& what, std::uint64_t bytes, std::optional<std::uint64_t> available) {
  if (available && bytes > *available)
    throw std::runtime_error(what + " needs " + gibibytes(bytes) + " of memory, there are " +
                             gibibytes(*available));
}

}  // namespace specula_examples
