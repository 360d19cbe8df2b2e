// SPDX-License-Identifier: MIT
// What became of the texts of a run: shown, counted, written as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "asked_prompt.hpp"
#include "decode.hpp"
#include "draft_note.hpp"

namespace specula_tools {

/// An answer to a turn of a prompt.
struct Answer {
  std::size_t prompt = 0, turn = 0;  // counted from 0
  std::string asked, text;           // the turn as it was put, and what was written
  Decoded run = {};
  std::string failure = {};  // what ended it, if it failed
};

/// Without the token that ended it.
Tokens answer_of(const Decoded& run);

/// Adds the last of a prompt's answers to its chat and asks the next turn, if there is one. If that cannot be
/// asked, it is an answer that failed, which is added. Returns whether a turn was asked.
bool next_turn(AskedPrompt& prompt, std::vector<Answer>& answers);

/// The answers of a run. One that fails is told at once and ends its prompt's turns alone.
class Answers {
 public:
  /// `program` and the failures are told on `notes`. Of `samples` answers to a prompt, each is a prompt of
  /// its own.
  Answers(std::string program, std::int32_t samples, std::ostream& notes)
      : program_(std::move(program)), samples_(static_cast<std::size_t>(samples)), notes_(&notes) {}

  void add(const Answer& answer);
  /// Says in how many texts drafting ended, if in any.
  void finish() { *notes_ << drafts_.line() << std::flush; }
  /// The exit status: 1 if a text has failed.
  int status() const { return failed_ ? 1 : 0; }
  /// An entry for each answer.
  const nlohmann::ordered_json& json() const { return json_; }

 private:
  std::string program_;
  std::size_t samples_;
  std::ostream* notes_;
  DraftNote drafts_;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::array();
  bool failed_ = false;
};

}  // namespace specula_tools
