// SPDX-License-Identifier: MIT
// Files in memory: their bytes, and errors that name the file.
#include <specula/files/detail/mapped_file.hpp>

#include "specula/files/detail/mapped_file.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "../safetensors_writer.hpp"

using specula::files::detail::MappedFile;

TEST_CASE("the bytes stay while an owner is kept") {
  const specula_test::TemporaryDirectory folder("mapped");
  const auto path = folder.path / "file";
  specula_test::write_file(path, "abc");
  const MappedFile file(path);
  std::filesystem::remove(path);
  REQUIRE(file.bytes().size() == 3);
  CHECK(file.bytes()[2] == std::byte{'c'});
  specula_test::write_file(path, "");
  CHECK(MappedFile(path).bytes().empty());
}

TEST_CASE("dropped pages have the same bytes when they are read again; other memory is left alone") {
  const specula_test::TemporaryDirectory folder("mapped");
  const auto path = folder.path / "file";
  std::string text;
  for (int i = 0; i < 300'000; ++i) text.push_back(static_cast<char>(i * 7 + i / 251));
  specula_test::write_file(path, text);
  const MappedFile file(path);
  const auto same = [&] {
    return std::equal(text.begin(), text.end(), file.bytes().begin(),
                      [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
  };
  CHECK(same());
  file.drop(file.bytes());
  CHECK(same());
  for (const std::size_t size : {0u, 1u, 5000u, 100'000u}) {
    file.drop(file.bytes().subspan(123, size));
    CHECK(same());
  }
  std::vector<std::byte> unmapped(1 << 20, std::byte{5});
  file.drop(unmapped);
  MappedFile().drop(unmapped);
  MappedFile().drop({});
  file.drop({});
  CHECK(std::count(unmapped.begin(), unmapped.end(), std::byte{5}) == 1 << 20);
}

TEST_CASE("what cannot be mapped is named") {
  const specula_test::TemporaryDirectory folder("mapped");
  CHECK_THROWS_WITH_AS(MappedFile(folder.path / "none"),
                       ((folder.path / "none").string() + ": cannot be opened").c_str(), std::runtime_error);
  CHECK_THROWS_WITH_AS(MappedFile(folder.path),
                       (folder.path.string() + ": is a folder, expected a file").c_str(), std::runtime_error);
  CHECK_THROWS_WITH_AS(MappedFile("/dev/null"),
                       "/dev/null: is no regular file, which it must be to be mapped into memory",
                       std::runtime_error);
}
