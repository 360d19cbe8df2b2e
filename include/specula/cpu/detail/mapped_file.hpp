// SPDX-License-Identifier: MIT
// A file in memory, mapped where the system can.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#if __has_include(<sys/mman.h>)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define SPECULA_MAPS_FILES 1
#else
#include <vector>
#define SPECULA_MAPS_FILES 0
#endif

#include "specula/cpu/detail/open_file.hpp"

namespace specula::cpu::detail {

/// The bytes of a file, read only, for as long as a copy of `owner` is kept. A file that another program cuts
/// short meanwhile ends this one, as with every mapped file.
struct MappedFile {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

/// Throws std::runtime_error naming `path` as open_file() does, and if it cannot be mapped (a pipe).
inline MappedFile map_file(const std::filesystem::path& path) {
  std::ifstream stream = open_file(path);
#if SPECULA_MAPS_FILES
  stream.close();
  const auto fail = [&](const char* what) { throw std::runtime_error(path.string() + ": " + what); };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail("cannot be opened");
  struct ::stat about {};
  const bool regular = ::fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  const std::size_t size = regular ? static_cast<std::size_t>(about.st_size) : 0;
  void* const at = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  ::close(file);
  if (!regular) fail("is no regular file, which it must be to be mapped into memory");
  if (size == 0) return {};
  if (at == MAP_FAILED) fail("cannot be mapped into memory");
  return {std::shared_ptr<const void>(at, [size](const void* p) { ::munmap(const_cast<void*>(p), size); }),
          {static_cast<const std::byte*>(at), size}};
#else
  stream.seekg(0, std::ios::end);
  auto all = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(stream.tellg()));
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(all->data()), static_cast<std::streamsize>(all->size()));
  if (!stream) throw std::runtime_error(path.string() + ": cannot be read");
  const std::span<const std::byte> bytes = *all;
  return {std::move(all), bytes};
#endif
}

}  // namespace specula::cpu::detail

#undef SPECULA_MAPS_FILES
