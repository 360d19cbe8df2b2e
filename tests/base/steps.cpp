// SPDX-License-Identifier: MIT
// labels: optimised
#include <doctest/doctest.h>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <specula/base/steps.hpp>

using namespace specula;

namespace {

/// What has an arena: as a ProposalBuilder. A coroutine that awaits it waits, unless it answers at once.
struct Desk {
  explicit Desk(bool at_once, std::size_t bytes = 4096) : answers(at_once), arena(bytes) {}
  StepsArena& steps_arena() { return arena; }
  void answer(int with) {
    value = with;
    std::exchange(waiting, nullptr).resume();
  }
  void refuse(const char* why) {
    fault = std::make_exception_ptr(std::runtime_error(why));
    std::exchange(waiting, nullptr).resume();
  }

  bool answers;
  StepsArena arena;
  std::coroutine_handle<> waiting;
  int value = 0, destroyed = 0;
  std::exception_ptr fault;
};
struct Question {
  Desk& desk;
  int about;
  bool await_ready() const {
    desk.value = 3 * about + 1;
    return desk.answers;
  }
  void await_suspend(std::coroutine_handle<> frame) const { desk.waiting = frame; }
  int await_resume() const {
    if (desk.fault) std::rethrow_exception(std::exchange(desk.fault, nullptr));
    return desk.value;
  }
};
struct Guard {
  Desk& desk;
  std::string text = "long enough to be on the heap, so that a leak is seen";
  explicit Guard(Desk& of) : desk(of) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { ++desk.destroyed; }
};

template <int depth>
Steps count(Desk& desk, int n, long& sum) {
  const Guard guard(desk);
  for (int i = 0; i < n; ++i) {
    if constexpr (depth > 0) {
      co_await count<depth - 1>(desk, n, sum);
    } else {
      const int answer = co_await Question{desk, i};
      sum = 7 * sum % 1000003 + answer;
    }
  }
}
Steps throws(Desk& desk) {
  const Guard guard(desk);
  co_await Question{desk, 1};
  throw std::runtime_error("inner");
}
Steps passes_on(Desk& desk) {
  const Guard guard(desk);
  co_await throws(desk);
}
Steps catches(Desk& desk, int& out) {
  const Guard guard(desk);
  bool failed = false;
  try {
    co_await passes_on(desk);
  } catch (const std::runtime_error&) {
    failed = true;
  }
  out = failed ? co_await Question{desk, 5} : -1;
}
std::string error_of(Steps& steps) {
  try {
    steps.rethrow();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("steps in steps: the same whether they wait or not, also where the arena has to grow") {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{4096}}) {
    Desk desk(true, bytes);
    long want = 0;
    count<3>(desk, 3, want).run();
    CHECK(desk.arena.frames() == 0);
    CHECK(desk.destroyed == 1 + 3 + 9 + 27);

    Desk other(false, bytes);
    long sum = 0;
    int waits = 0;
    Steps steps = count<3>(other, 3, sum);
    CHECK_FALSE(steps.done());
    for (bool ended = steps.advance(); !ended; ended = steps.done(), ++waits) {
      CHECK(other.arena.frames() == 4);
      other.answer(3 * (waits % 3) + 1);
    }
    CHECK(waits == 81);
    CHECK(sum == want);
    CHECK(error_of(steps) == "");
    steps = {};
    CHECK(other.arena.frames() == 0);
  }
}

TEST_CASE("an exception goes through two frames, alone and after a wait") {
  Desk desk(true);
  CHECK_THROWS_WITH_AS(passes_on(desk).run(), "inner", std::runtime_error);
  CHECK(desk.destroyed == 2);
  CHECK(desk.arena.frames() == 0);

  Desk waits(false);
  Steps steps = passes_on(waits);
  REQUIRE_FALSE(steps.advance());
  waits.answer(0);
  REQUIRE(steps.done());
  CHECK(error_of(steps) == "inner");
  CHECK(waits.destroyed == 2);
}

TEST_CASE("one that has caught an exception may wait again, and a question may be refused") {
  for (const bool refused : {false, true}) {
    Desk desk(false);
    int out = 0;
    Steps steps = catches(desk, out);
    REQUIRE_FALSE(steps.advance());
    if (refused)
      desk.refuse("no pass");
    else
      desk.answer(1);
    REQUIRE_FALSE(steps.done());
    desk.answer(9);
    REQUIRE(steps.done());
    CHECK(out == 9);
    CHECK(desk.destroyed == 3);
  }
}

TEST_CASE("destroyed before it begins, and while it waits at every depth") {
  Desk desk(false);
  long sum = 0;
  { const Steps never = count<3>(desk, 3, sum); }
  CHECK(desk.destroyed == 0);
  CHECK(desk.arena.frames() == 0);
  for (int answers = 0; answers < 27; ++answers) {
    {
      Steps steps = count<2>(desk, 3, sum);
      CHECK_FALSE(steps.advance());
      for (int i = 0; i + 1 < answers; ++i) desk.answer(i);
    }
    CHECK(desk.arena.frames() == 0);
  }
  desk.destroyed = 0;
  int out = 0;
  {
    Steps steps = catches(desk, out);
    CHECK_FALSE(steps.advance());
    Steps moved = std::move(steps);
    CHECK(steps.done());
    CHECK_FALSE(moved.done());
    CHECK(desk.destroyed == 0);
    moved = {};
    CHECK(desk.destroyed == 3);
  }
  CHECK(desk.destroyed == 3);
}

TEST_CASE("run() of one that waits is an error, and none at all has ended") {
  Desk desk(false);
  CHECK_THROWS_AS(passes_on(desk).run(), std::logic_error);
  CHECK(desk.arena.frames() == 0);
  Steps none;
  CHECK(none.done());
  CHECK_NOTHROW(none.run());
}

TEST_CASE("an arena moves where no frame is alive, and gives memory back out of order") {
  StepsArena arena(128);
  void* const first = arena.take(64);
  void* const second = arena.take(64);
  void* const third = arena.take(1000);  // a block of its own
  CHECK(arena.frames() == 3);
  arena.give_back(second, 64);
  arena.give_back(third, 1000);
  arena.give_back(first, 64);
  CHECK(arena.frames() == 0);
  StepsArena moved = std::move(arena);
  CHECK(moved.take(64) == first);
  moved.give_back(first, 64);
}
