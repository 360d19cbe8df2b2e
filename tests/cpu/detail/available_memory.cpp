// SPDX-License-Identifier: MIT
// Memory that is left: of the machine, of control groups of both versions, of the address space.
#include <specula/cpu/detail/available_memory.hpp>

#include "specula/cpu/detail/available_memory.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "../../files/safetensors_writer.hpp"

namespace {

using specula::cpu::detail::available_memory;
using specula::cpu::detail::MemoryFiles;

/// Files as Linux has them, in a folder.
struct Machine {
  specula_test::TemporaryDirectory folder{"memory"};
  MemoryFiles files{folder.path / "meminfo", folder.path / "own", folder.path / "groups",
                    folder.path / "statm"};

  void group(const std::string& path, const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(files.groups / path);
    specula_test::write_file(files.groups / path / name, text);
  }
  auto left() const { return available_memory(files); }
};

}  // namespace

TEST_CASE("nothing is known where no file says it") { CHECK(!Machine().left()); }

TEST_CASE("this machine says it") {
#ifdef __linux__
  CHECK(available_memory().value_or(0) > 1 << 20);
#endif
}

TEST_CASE("of the machine, and of groups of version 2") {
  const Machine machine;
  specula_test::write_file(machine.files.meminfo,
                           "MemTotal:  9000 kB\nMemFree:  7 kB\nMemAvailable:  8000 kB\nBuffers: 5 kB\n");
  CHECK(machine.left() == 8'192'000);
  specula_test::write_file(machine.files.own_groups, "0::/user/session\n");
  CHECK(machine.left() == 8'192'000);
  machine.group("user/session", "memory.max", "max\n");
  machine.group("user/session", "memory.current", "100\n");
  CHECK(machine.left() == 8'192'000);
  machine.group("user", "memory.max", "1000000\n");  // that around it
  machine.group("user", "memory.current", "300000\n");
  CHECK(machine.left() == 700'000);
  machine.group("user", "memory.stat", "anon 1\nfile 7\ninactive_file 50000\nactive_file 20000\n");
  CHECK(machine.left() == 770'000);
  machine.group("user/session", "memory.max", "99\n");
  CHECK(machine.left() == 0);
  // A container sees the path of outside, and its own group as the root.
  specula_test::write_file(machine.files.own_groups, "0::/docker/1234\n");
  CHECK(machine.left() == 8'192'000);
  machine.group("", "memory.max", "5000\n");
  machine.group("", "memory.current", "1000\n");
  CHECK(machine.left() == 4000);
  machine.group("", "memory.stat", "inactive_file 2000\n");  // more than there is, at another moment
  CHECK(machine.left() == 5000);
}

TEST_CASE("of groups of version 1") {
  const Machine machine;
  specula_test::write_file(machine.files.own_groups,
                           "7:blkio:/\n4:hugetlb,memory:/one\nmalformed\n3:cpuset:/one\n0::/\n");
  machine.group("memory/one", "memory.limit_in_bytes", "9223372036854771712\n");  // none
  machine.group("memory/one", "memory.usage_in_bytes", "2000\n");
  CHECK(machine.left() == 9223372036854769712u);
  machine.group("memory", "memory.limit_in_bytes", "10000\n");
  machine.group("memory", "memory.usage_in_bytes", "4000\n");
  machine.group("memory", "memory.stat", "active_file 1\ntotal_inactive_file 1000\ntotal_active_file 500\n");
  CHECK(machine.left() == 7500);
}

#ifdef __linux__
TEST_CASE("of the address space") {
  const Machine machine;
  specula_test::write_file(machine.files.own_pages, "1000000 7\n");
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit limit = before;
  limit.rlim_cur = rlim_t{1} << 50;  // beyond what a process has, so that it is none
  if (before.rlim_cur != RLIM_INFINITY || setrlimit(RLIMIT_AS, &limit) != 0) return;
  const auto left = machine.left();
  setrlimit(RLIMIT_AS, &before);
  CHECK(left == (std::uint64_t{1} << 50) - 1'000'000 * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}
#endif
