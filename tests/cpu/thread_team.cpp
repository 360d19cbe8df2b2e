// SPDX-License-Identifier: MIT
// labels: threads
// ThreadTeam: barriers between threads.
#include <specula/cpu/thread_team.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace {

using specula::cpu::ThreadTeam;

TEST_CASE("barriers order the members' steps") {
  for (const std::int32_t size : {1, 2, 3, 7}) {
    ThreadTeam team(size);
    CHECK(team.size() == size);
    std::vector<std::int64_t> left(static_cast<std::size_t>(size)), right(static_cast<std::size_t>(size));
    for (int run = 0; run < 20; ++run) {
      auto body = [&](std::int32_t member) {
        const auto me = static_cast<std::size_t>(member),
                   next = static_cast<std::size_t>((member + 1) % size);
        for (int step = 0; step < 50; ++step) {  // each passes its number to a neighbour, over two barriers
          left[me] = right[next] + 1;
          team.barrier();
          right[me] = left[next];
          team.barrier();
        }
      };
      team.run(body);
    }
    for (const auto value : right) CHECK(value == 1000);
  }
}

TEST_CASE("a team need not run, and sizes are checked") {
  ThreadTeam idle(4);
  CHECK_THROWS_WITH_AS(ThreadTeam(0), "threads is 0, must be 1 to 256", std::invalid_argument);
  CHECK_THROWS_WITH_AS(ThreadTeam(257), "threads is 257, must be 1 to 256", std::invalid_argument);
}

}  // namespace
