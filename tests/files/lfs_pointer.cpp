// SPDX-License-Identifier: MIT
// What Git LFS leaves in place of a file, and what only resembles it.
#include <specula/files/lfs_pointer.hpp>

#include <doctest/doctest.h>

#include <string>

using specula::is_lfs_pointer;

TEST_CASE("a pointer is known by its first line, whatever its version") {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 26817536\n";
  CHECK(is_lfs_pointer(pointer));
  CHECK(is_lfs_pointer(pointer.substr(0, 40)));
  CHECK(is_lfs_pointer("version https://git-lfs.github.com/spec/v2\n"));
  for (const std::string& other :
       {std::string(), std::string("version"), pointer.substr(0, 39), pointer.substr(1), ' ' + pointer,
        std::string("GGUF"), std::string("{\"version\": \"https://git-lfs.github.com/spec/v1\"}")})
    CHECK_FALSE(is_lfs_pointer(other));
}
