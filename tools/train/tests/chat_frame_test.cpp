// SPDX-License-Identifier: MIT
// What a chat template puts around turns, on disk.
#include "chat_frame.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

#include "folder.hpp"

namespace st = specula_train;

TEST_CASE("a frame comes back as it was; another file is refused by key") {
  const specula_train_test::Folder folder("specula_chat_frame_test");
  const st::ChatFrame frame{
      .ends = {2, 4}, .before_question = {1, 7}, .before_answer = {8}, .before_next_question = {9, 1}};
  st::write_chat_frame(frame, folder.path);
  const auto read = st::read_chat_frame(folder.path, 10);
  CHECK(read.ends == frame.ends);
  CHECK(read.before_question == frame.before_question);
  CHECK(read.before_answer == frame.before_answer);
  CHECK(read.before_next_question == frame.before_next_question);
  CHECK_THROWS_WITH_AS(st::read_chat_frame(folder.path, 9),
                       doctest::Contains("'before_next_question': token 9 is outside"), std::runtime_error);
  folder.write("chat.json", R"({"ends": [2], "before_question": "text"})");
  CHECK_THROWS_WITH_AS(st::read_chat_frame(folder.path, 10), doctest::Contains("before_question"),
                       std::runtime_error);
  CHECK_THROWS_WITH_AS(st::read_chat_frame(folder.path / "none", 10),
                       doctest::Contains("specula-train-text prompts"), std::runtime_error);
}
