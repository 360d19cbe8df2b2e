// SPDX-License-Identifier: MIT
// The programs' checks before a run, and their output: files, memory, context, tables.
#include <doctest/doctest.h>

#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <specula/cpu/detail/available_memory.hpp>

#include "context.hpp"
#include "errors.hpp"
#include "files.hpp"
#include "memory.hpp"
#include "text_table.hpp"

using namespace specula_tools;
namespace fs = std::filesystem;

namespace {

class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "specula_checks_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path = name;
  }
  ~Scratch() { fs::remove_all(path); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
  fs::path path;
};

template <class Call>
std::string complaint(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0, line = 0;
  for (const char c : text) most = std::max(most, line = c == '\n' ? 0 : line + 1);
  return most;
}

}  // namespace

TEST_CASE("a file is written under another name and replaces the old one atomically") {
  const Scratch scratch;
  const fs::path file = scratch.path / "out.json", link = scratch.path / "link.json";
  write_file(file, "old");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  std::ifstream reader(file);
  check_writable(file);
  CHECK(read_file(file) == "old");  // checking changes nothing
  CHECK(scratch.entries() == 1);
  fs::create_symlink(file, link);
  write_file(link, "new");
  CHECK(read_file(file) == "new");
  CHECK(fs::is_symlink(link));
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  std::string seen;
  reader >> seen;
  CHECK(seen == "old");  // a reader that has opened the old file still reads all of it
  CHECK(scratch.entries() == 2);
  write_file("/dev/null", "gone");
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("errors name files that cannot be read or written, and say if it is a folder") {
  const Scratch scratch;
  const std::string folder = scratch.path.string(), below = (scratch.path / "no" / "file").string();
  CHECK(complaint([&] { read_file(folder); }) == folder + ": is a folder, must be a file");
  CHECK(complaint([&] { read_file(below); }) == below + ": cannot be opened for reading");
  CHECK(complaint([&] { check_writable(folder); }) == folder + ": is a folder, must be a file");
  CHECK(complaint([&] { check_writable(below); }) == below + ": cannot be opened for writing");
  CHECK(complaint([&] { write_file(below, "x"); }) == below + ": cannot be opened for writing");
  if (fs::exists("/dev/full"))
    CHECK(complaint([] { write_file("/dev/full", "x"); }) == "/dev/full: cannot be written");
  CHECK(scratch.entries() == 0);
}

TEST_CASE("an output that is also an input is refused, under any name") {
  const Scratch scratch;
  const fs::path file = scratch.path / "prompts";
  write_file(file, "x");
  CHECK_THROWS_AS(check_distinct("--json", scratch.path / "." / "prompts", "--prompts", file), UsageError);
  CHECK(complaint([&] { check_distinct("--json", file, "--prompts", file); }) ==
        "--json " + file.string() + " is the file of --prompts: it would be overwritten");
  check_distinct("--json", scratch.path / "other", "--prompts", file);
}

TEST_CASE("memory: an error with both sizes if the caches exceed it") {
  constexpr std::uint64_t kGib = std::uint64_t{1} << 30;
  CHECK(complaint([] { check_memory("a cache", 3 * kGib, 2 * kGib); }) ==
        "a cache needs 3.00 GiB of memory, there are 2.00 GiB");
  check_memory("a cache", 2 * kGib, 2 * kGib);
  check_memory("a cache", 1000 * kGib, std::nullopt);
  if (const auto available = specula::cpu::detail::available_memory())
    CHECK_THROWS_AS(check_memory("a cache", *available * 2), std::runtime_error);
}

TEST_CASE("context: prompt and new tokens up to the trained context") {
  const std::vector<std::vector<specula::Token>> one{std::vector<specula::Token>(10)},
      two{std::vector<specula::Token>(3), std::vector<specula::Token>(10)};
  check_context(one, 6, 16, "the target t", false);
  CHECK_THROWS_AS(check_context(one, 7, 16, "the target t", false), UsageError);
  CHECK(complaint([&] { check_context(two, 7, 16, "the target t", false); }) ==
        "prompt 2 has 10 tokens; with --max-new-tokens 7 that is 17 positions, and the target t was trained "
        "for 16: shorten them, or give --beyond-context");
  check_context(one, 7, 16, "the target t", true);
  check_context(one, 7, 0, "the target t", false);
}

TEST_CASE("tables wider than 100 columns continue below") {
  const std::string wide(30, 'w');
  const std::vector<std::vector<std::string>> rows{{"name", "a", "b", "c", "d"},
                                                   {"first", wide, wide, wide, "1"}};
  const std::string text = text_table(rows);
  CHECK(widest(text) <= 100);
  CHECK(text.find("name ") == 0);
  CHECK(text.find("\n\nname ") != std::string::npos);
  std::size_t first = 0;
  for (std::size_t at = 0; (at = text.find("first  ", at)) != std::string::npos; ++at) ++first;
  CHECK(first == 2);
  CHECK(text.find(wide + "  1\n") != std::string::npos);
  CHECK(text_table({{"name", "a"}, {"x", "12"}}) == "name   a\nx     12\n");
  CHECK(text_table({{"name", "a"}, {std::string(120, 'n'), "1"}}).find("n  1\n") != std::string::npos);
}
