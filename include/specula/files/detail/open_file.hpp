// SPDX-License-Identifier: MIT
// Opens a file for reading, with errors that name it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "specula/base/compiler_options.hpp"
#include "specula/files/lfs_pointer.hpp"

namespace specula::files::detail {

/// Throws std::runtime_error naming `path` if it is a folder, cannot be opened or is a pointer of Git LFS.
inline std::ifstream open_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))  // a stream opens it, but cannot read it
    throw std::runtime_error(path.string() + ": is a folder, expected a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error(path.string() + ": cannot be opened");
  if (stream.peek() == 'v') {  // what begins otherwise may be a pipe, which cannot be read again
    char begin[64];
    stream.read(begin, sizeof begin);
    if (is_lfs_pointer({begin, static_cast<std::size_t>(stream.gcount())}))
      throw std::runtime_error(path.string() + ": " + kLfsPointer);
    stream.clear();
    stream.seekg(0);
  }
  stream.clear();
  return stream;
}

}  // namespace specula::files::detail
