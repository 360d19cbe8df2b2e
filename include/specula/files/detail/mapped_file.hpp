// SPDX-License-Identifier: MIT
// A file in memory, mapped where the system can.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

#include "specula/files/detail/open_file.hpp"

namespace specula::files::detail {

/// The bytes of a file, read only, for as long as a copy of this is kept. A file that another program cuts
/// short meanwhile ends this one, as with every mapped file.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws std::runtime_error naming `path` as open_file() does, and if it cannot be mapped (a pipe).
  explicit MappedFile(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Takes the pages that lie wholly within `read` out of this process's memory, until they are read again:
  /// then they have the same bytes. Only of this file, whatever `read` is: other memory would be zeroed.
  void drop([[maybe_unused]] std::span<const std::byte> read) const {
#if SPECULA_MAPS_FILES && defined(MADV_DONTNEED)
    const auto at = [](const std::byte* byte) { return reinterpret_cast<std::uintptr_t>(byte); };
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t from = std::max(at(read.data()), at(bytes_.data())),
                         to = std::min(at(read.data() + read.size()), at(bytes_.data() + bytes_.size())),
                         first = (from + page - 1) / page * page, last = to / page * page;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
#endif
  }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

inline MappedFile::MappedFile(const std::filesystem::path& path) {
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
  if (size == 0) return;
  if (at == MAP_FAILED) fail("cannot be mapped into memory");
  owner_ = {at, [size](const void* p) { ::munmap(const_cast<void*>(p), size); }};
  bytes_ = {static_cast<const std::byte*>(at), size};
#else
  stream.seekg(0, std::ios::end);
  auto all = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(stream.tellg()));
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(all->data()), static_cast<std::streamsize>(all->size()));
  if (!stream) throw std::runtime_error(path.string() + ": cannot be read");
  bytes_ = *all;
  owner_ = std::move(all);
#endif
}

}  // namespace specula::files::detail

#undef SPECULA_MAPS_FILES
