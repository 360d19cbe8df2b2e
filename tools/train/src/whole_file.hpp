// Files that are there as a whole or not at all.
#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace specula_train {

/// Writes beside `file` and renames. Throws std::runtime_error naming the file.
inline void write_whole(const std::filesystem::path& file, const std::string& bytes) {
  const auto temporary = file.string() + ".part";
  std::ofstream out(temporary, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error(file.string() + ": cannot be written");
  std::filesystem::rename(temporary, file);
}

}  // namespace specula_train
