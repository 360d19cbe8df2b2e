// Opens a file for reading, with errors that name it.
#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "specula/base/compiler_options.hpp"

namespace specula::eigen::detail {

/// Throws std::runtime_error naming `path` if it is a folder or cannot be opened.
inline std::ifstream open_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))  // a stream opens it, but cannot read it
    throw std::runtime_error(path.string() + ": is a folder, expected a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error(path.string() + ": cannot be opened");
  return stream;
}

}  // namespace specula::eigen::detail
