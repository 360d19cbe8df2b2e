// SPDX-License-Identifier: MIT
// A temporary folder, removed when the test ends.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace specula_train_test {

struct Folder {
  explicit Folder(const char* name) : path(std::filesystem::temp_directory_path() / name) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const std::filesystem::path& name, const std::string& text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }

  std::filesystem::path path;
};

}  // namespace specula_train_test
