// SPDX-License-Identifier: MIT
// Work in a child process of bounded time, memory and output.
#include "limited_call.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

using specula_tools::CallLimits;
using specula_tools::limited_call;

namespace {

/// What a call fails with.
std::string failure(const std::function<std::string()>& work, const CallLimits& limits = {}) {
  try {
    limited_call(work, limits);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

volatile unsigned sink = 0;

int without_end(int n) {
  volatile char frame[256] = {};
  return n < 0 ? 0 : without_end(n + 1) + frame[static_cast<std::size_t>(n) % 256];
}

}  // namespace

TEST_CASE("a result comes back whole, and what the work changes is lost") {
  int changed = 0;
  const std::string bytes = std::string(1, '\0') + "\xff" + std::string(1 << 20, 'x');
  CHECK(limited_call([&] {
          changed = 1;
          return bytes;
        }) == bytes);
  CHECK(changed == 0);
  CHECK(limited_call([] { return std::string(); }).empty());
}

TEST_CASE("an exception's message comes back") {
  CHECK(failure([]() -> std::string { throw std::invalid_argument("no such thing"); }) == "no such thing");
}

TEST_CASE("endless work ends") {
  CHECK(failure(
            []() -> std::string {
              for (;;) sink = sink + 1;
            },
            {.seconds = 1}) == "it takes more than 1 seconds");
}

TEST_CASE("a long result is refused, and not read to its end") {
  CHECK(limited_call([] { return std::string(10, 'x'); }, {.output = 10}) == std::string(10, 'x'));
  CHECK(failure([] { return std::string(11, 'x'); }, {.output = 10}) == "its result is longer than 10 bytes");
  CHECK(failure([] { return std::string(1 << 22, 'x'); }, {.output = 10}) ==
        "its result is longer than 10 bytes");
}

TEST_CASE("memory is bounded") {
  const std::string error =
      failure([] { return std::string(std::size_t{1} << 28, 'x'); }, {.memory = std::size_t{1} << 26});
  // A sanitizer ends the child itself.
  CHECK((error == "it needs more than 64 MiB" || error.starts_with("it nests too deeply")));
}

TEST_CASE("a crash ends the child, not the caller") {
  for (const auto& work : std::initializer_list<std::function<std::string()>>{
           [] { return std::to_string(without_end(0)); },
           []() -> std::string { std::abort(); },
           []() -> std::string { std::_Exit(0); },
       })
    CHECK(failure(work).starts_with("it nests too deeply, needs too much memory, or meets a fault"));
}
