// SPDX-License-Identifier: MIT
// The queue of the texts of a batch that have no slot.
#include <specula/batch/waiting_texts.hpp>

#include <doctest/doctest.h>

using namespace specula;

TEST_CASE("the queue: texts that made room come first, one for each end of another; nothing overtakes them") {
  detail::WaitingTexts waiting;
  const auto none = [](Tokens) { return false; };
  const auto all = [](Tokens) { return true; };
  const auto next = [&](bool none_runs, const auto& waits) {
    const detail::WaitingText* const text = waiting.next(none_runs, waits);
    return text ? text->id : TextId{0};
  };
  waiting.join({.id = 4, .request = {.prompt = {4}}});
  waiting.ended();  // before they made room
  waiting.add_first().id = 3;
  waiting.add_first().id = 2;
  waiting.join({.id = 5, .request = {.prompt = {0}}});
  CHECK(next(false, none) == 0);
  CHECK(next(true, none) == 2);
  waiting.ended();
  CHECK(next(false, all) == 2);  // even if what it begins with is being read
  CHECK(waiting.take().id == 2);
  CHECK(next(false, none) == 0);
  CHECK(waiting.pause(3));
  CHECK(waiting.resume(3));
  CHECK(next(false, none) == 3);  // on request, without an end
  CHECK(waiting.take().id == 3);
  // One that waits for what another reads lets the others go by.
  CHECK(next(false, [](Tokens prompt) { return prompt[0] == 4; }) == 5);
  CHECK(next(false, all) == 0);
}
