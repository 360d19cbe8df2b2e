// SPDX-License-Identifier: MIT
// Opening files: what is no file that can be read is an error that names it.
#include <specula/files/detail/open_file.hpp>

#include <doctest/doctest.h>

#include <iterator>
#include <stdexcept>
#include <string>

#include "../safetensors_writer.hpp"

using specula::files::detail::open_file;

TEST_CASE("a file is read from its beginning, also if it begins like a pointer of Git LFS") {
  const specula_test::TemporaryDirectory folder("open_file");
  for (const std::string text :
       {"", "x", "vx", "version 2 of something that is longer than what is looked at, 64 bytes"}) {
    specula_test::write_file(folder.path / "file", text);
    std::ifstream stream = open_file(folder.path / "file");
    CHECK(std::string(std::istreambuf_iterator<char>(stream), {}) == text);
  }
}

TEST_CASE("a folder, a file that is not there, and a pointer of Git LFS") {
  const specula_test::TemporaryDirectory folder("open_file");
  const std::string path = (folder.path / "file").string();
  CHECK_THROWS_WITH_AS(open_file(folder.path),
                       (folder.path.string() + ": is a folder, expected a file").c_str(), std::runtime_error);
  CHECK_THROWS_WITH_AS(open_file(path), (path + ": cannot be opened").c_str(), std::runtime_error);
  specula_test::write_file(path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  CHECK_THROWS_WITH_AS(open_file(path), (path + ": " + specula::kLfsPointer).c_str(), std::runtime_error);
}
