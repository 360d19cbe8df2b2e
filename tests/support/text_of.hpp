// SPDX-License-Identifier: MIT
// Files of the project as text, for tests that compare code, pages and lists.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace specula_test {

inline const std::filesystem::path kProject = SPECULA_MODELS_DIR "/../..";

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  REQUIRE_MESSAGE(in.good(), file.string());
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

}  // namespace specula_test
