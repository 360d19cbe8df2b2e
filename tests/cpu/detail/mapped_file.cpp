// SPDX-License-Identifier: MIT
// Files in memory: their bytes, and errors that name the file.
#include <specula/cpu/detail/mapped_file.hpp>

#include "specula/cpu/detail/mapped_file.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>

#include "../safetensors_writer.hpp"

using specula::cpu::detail::map_file;

TEST_CASE("the bytes stay while an owner is kept") {
  const specula_test::TemporaryDirectory folder("mapped");
  const auto path = folder.path / "file";
  specula_test::write_file(path, "abc");
  const auto file = map_file(path);
  std::filesystem::remove(path);
  REQUIRE(file.bytes.size() == 3);
  CHECK(file.bytes[2] == std::byte{'c'});
  specula_test::write_file(path, "");
  CHECK(map_file(path).bytes.empty());
}

TEST_CASE("what cannot be mapped is named") {
  const specula_test::TemporaryDirectory folder("mapped");
  CHECK_THROWS_WITH_AS(map_file(folder.path / "none"),
                       ((folder.path / "none").string() + ": cannot be opened").c_str(), std::runtime_error);
  CHECK_THROWS_WITH_AS(map_file(folder.path),
                       (folder.path.string() + ": is a folder, expected a file").c_str(), std::runtime_error);
  CHECK_THROWS_WITH_AS(map_file("/dev/null"),
                       "/dev/null: is no regular file, which it must be to be mapped into memory",
                       std::runtime_error);
}
